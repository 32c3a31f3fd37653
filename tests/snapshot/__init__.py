"""Tests of `streamdedup/snapshot/`, module by module."""
