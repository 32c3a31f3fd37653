"""Parsers of foreign bytes, given bytes that nobody meant: each refuses them by its documented errors, or reads them.

`targets` names the parsers, `corpus` has small real inputs, `mutations` changes them, `play` runs. An input is known
by target, seed and number, so whatever goes wrong can be played again. `python -m proof fuzz` runs for minutes.
"""
