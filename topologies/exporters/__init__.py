"""A topology in the formats of other tools."""
