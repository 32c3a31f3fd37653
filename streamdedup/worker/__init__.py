"""The worker process: start-up, assignments, supervision, and the lists in force."""
