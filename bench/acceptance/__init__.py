"""`make acceptance`: every figure of the literature beside theory and what is measured here, each held to bounds."""
