"""What proves more than `make test` has time for: tools, by `python -m proof NAME`, and tests, by `make test-all`."""
