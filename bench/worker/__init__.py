"""Benchmarks of the worker on a real broker: `make bench`, `python -m bench full`."""
