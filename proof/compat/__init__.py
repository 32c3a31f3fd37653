"""`python -m proof compat`: storms and broker tests on each version of Kafka, and the page of what came of them.

`playing` does it, `results` keeps it, `page` writes results/compatibility.md.
"""
