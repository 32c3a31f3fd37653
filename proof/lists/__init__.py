"""What takes long, or a real broker, to claim of `streamdedup/lists/`; the rest is in tests/lists."""
