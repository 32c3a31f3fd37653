"""What takes long to claim of `streamdedup/kept/`; the rest is in tests/kept."""
