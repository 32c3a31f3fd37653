"""Deployments that are broken in ways that operators meet, each explained by `doctor` and `explain` alone."""
