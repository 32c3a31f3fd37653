"""The metrics: the catalog of their names, and the counts from which they are made."""
