"""What takes long, or a real broker, to claim of `streamdedup/keys/`; the rest is in tests/keys."""
