"""What takes long, or is rare, to claim of `streamdedup/registry/`; the rest is in tests/registry."""
