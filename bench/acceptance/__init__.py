"""`python -m bench acceptance`: every figure of the literature beside theory and measurement, each held to bounds."""
