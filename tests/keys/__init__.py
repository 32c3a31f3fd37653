"""Tests of `streamdedup/keys/`, module by module."""
