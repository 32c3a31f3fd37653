"""What takes long, or a real broker, to claim of `streamdedup/contrib/`; the rest is in tests/contrib."""
