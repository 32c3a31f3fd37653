"""Tests of `streamdedup/cli/`, module by module."""
