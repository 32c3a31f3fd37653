"""What is claimed of examples/: each runs as it stands, against what it is for."""
