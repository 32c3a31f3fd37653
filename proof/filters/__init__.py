"""What takes long, or a real broker, to claim of `streamdedup/filters/`; the rest is in tests/filters."""
