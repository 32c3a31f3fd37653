"""What takes long to claim of `streamdedup/server/`; the rest is in tests/server."""
