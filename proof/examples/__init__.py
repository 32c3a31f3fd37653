"""What takes long, or a real broker, to claim of `examples/`; the rest is in tests/examples."""
