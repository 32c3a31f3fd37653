"""Tests of the first stage of `source.repartition`."""
