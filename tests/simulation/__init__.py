"""Whole deployments by a seed: workers over a broker in memory, on a clock that jumps, with faults; and an oracle.

`python -m tests.simulation --seeds 100000 --start N` runs more than `make test` does.
"""
