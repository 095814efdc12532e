"""Objects of other packages, made of our plans. Each module imports its package inside its functions."""
