"""What takes long to claim of `streamdedup/delivery/`, or proves a second time; the rest is in tests/delivery."""
