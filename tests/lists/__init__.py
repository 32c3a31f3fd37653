"""Tests of `streamdedup/lists/`, module by module."""
