"""Tests of the log: what a line says, and how it is written."""
