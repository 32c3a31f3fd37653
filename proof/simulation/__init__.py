"""Whole deployments by a seed: workers over a broker in memory, on a clock that jumps, with faults; and an oracle.

`python -m proof simulation --seeds 100000 --start 2000` runs more than is promised.
"""
