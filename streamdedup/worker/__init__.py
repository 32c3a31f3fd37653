"""The process: start-up, the assignment, supervision, the lists in force."""
