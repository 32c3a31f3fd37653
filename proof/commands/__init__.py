"""What takes long, or a real broker, to claim of `streamdedup/commands/`; the rest is in tests/commands."""
