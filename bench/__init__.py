"""Benchmarks: each runs from one command of the Makefile and prints ratios."""
