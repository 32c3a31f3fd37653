"""Claims about `streamdedup explain`."""
