"""Tests of `streamdedup/filters/`, module by module."""
