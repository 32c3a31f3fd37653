"""Mirrors streamdedup/kept/."""
