"""A bitmap: one bit for each integer of a range, or for each hash value."""
