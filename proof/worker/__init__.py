"""What takes long to claim of `streamdedup/worker/`, or proves a second time; the rest is in tests/worker."""
