"""What takes long to claim of `streamdedup/logs/`; the rest is in tests/logs."""
