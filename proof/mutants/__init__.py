"""Mutants: one small change to the product that breaks one promise each, and the tests that must notice."""
