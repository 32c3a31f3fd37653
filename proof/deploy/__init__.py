"""What takes a container engine to claim of `deploy/`."""
