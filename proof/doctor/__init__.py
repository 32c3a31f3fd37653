"""`streamdedup doctor` on a real broker; its checks, one by one, in tests/doctor."""
