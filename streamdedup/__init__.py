"""Tell, at stream speed and in a few bits a key, whether an event has been seen before."""

__version__ = "0.1.0"
