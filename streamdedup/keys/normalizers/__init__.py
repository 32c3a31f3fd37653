"""How different spellings of one key become the same bytes."""
