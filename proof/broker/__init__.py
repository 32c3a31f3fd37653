"""What is claimed of real brokers beyond the tests of `make test`; the apparatus is in tests/broker."""
