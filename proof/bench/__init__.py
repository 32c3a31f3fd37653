"""Tests of `bench/`, module by module."""
