"""What is claimed of the configuration, in full tables."""
