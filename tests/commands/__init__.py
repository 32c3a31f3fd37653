"""Tests of `streamdedup/commands/`, module by module."""
