"""Faults against real workers on real brokers, in rounds that an oracle judges: `python -m proof chaos`.

`matrix` names the scenarios, `driver` plays their rounds, `report` writes results/guarantees.md from what was recorded.
"""
