"""What takes long, or a real broker, to claim of `streamdedup/snapshot/`; the rest is in tests/snapshot."""
