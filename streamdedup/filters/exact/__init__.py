"""Sets without false positives up to their fingerprint's width, and an exact map of digests."""
