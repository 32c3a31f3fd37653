"""Tests of `streamdedup/delivery/`, module by module."""
