"""Tests of `streamdedup/metrics/`, module by module."""
