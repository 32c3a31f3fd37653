"""Programs that run in environments of their own, see `environment.py`: what they import is not installed here."""
