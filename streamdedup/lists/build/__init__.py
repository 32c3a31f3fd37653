"""Building a list: from its inputs to the file, and to the exact store."""
