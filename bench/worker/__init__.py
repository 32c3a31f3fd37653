"""Benchmarks of the worker on a real broker: `make bench`, `make bench-full`."""
