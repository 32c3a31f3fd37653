"""What is claimed of the configuration."""
