"""Tests of `streamdedup/rules/`, module by module."""
