"""How large a cluster must be, and what it costs."""
