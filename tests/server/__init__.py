"""Tests of `streamdedup/server/`, module by module."""
