"""From a question to its plan."""
