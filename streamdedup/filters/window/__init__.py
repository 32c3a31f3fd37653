"""Filters that forget: a ring of generations over event time or counts."""
