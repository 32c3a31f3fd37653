"""What takes long, or a real broker, to claim of `streamdedup/cli/`; the rest is in tests/cli."""
