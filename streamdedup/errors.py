"""Every error a user can meet, by whose fault it is, and the exit status it ends in.

A message says what happened, to what, and what to do. No message ever holds a key: events are named by
topic, partition and offset.
"""


class StreamdedupError(Exception):
    """Base of all errors that this package raises on purpose."""

    exit_status = 1


class ConfigError(StreamdedupError):
    """The operator's: a setting, an argument or a topic that does not fit."""

    exit_status = 2


class SnapshotError(StreamdedupError):
    """The disk's: a snapshot that cannot be written, or must not be trusted."""


class DeliveryError(StreamdedupError):
    """The broker's: a log, an offset or a transaction that contradicts what we know."""
