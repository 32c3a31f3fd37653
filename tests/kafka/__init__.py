"""Tests of `streamdedup/kafka/`, module by module."""
