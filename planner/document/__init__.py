"""The plan document and the files around it."""
