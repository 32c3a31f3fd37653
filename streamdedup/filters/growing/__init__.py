"""A chain of filters that grows in stages and keeps its total error rate."""
