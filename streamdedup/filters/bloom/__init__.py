"""Bloom filters: plain, blocked, counting, and the classic interface."""
