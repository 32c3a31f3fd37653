"""The tests of `make test`, and the apparatus of all tests; what proves more is in proof/."""
