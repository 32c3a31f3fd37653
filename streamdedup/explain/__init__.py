"""Why an event is in the output or is not, and whether a key is known: from snapshots, the output and the input."""
