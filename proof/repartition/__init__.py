"""What takes long to claim of `streamdedup/repartition/`, or proves a second time; the rest is in tests/repartition."""
