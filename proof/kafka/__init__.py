"""What takes long, or a real broker, to claim of `streamdedup/kafka/`; the rest is in tests/kafka."""
