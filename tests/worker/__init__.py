"""Tests of `streamdedup/worker/`, module by module."""
