"""Filters on disk: in a file of a program's own, or as a worker's snapshots. Only an intact file is loaded."""

from streamdedup.snapshot.header import Identity
from streamdedup.snapshot.store import LockedError, Refusal, Saved, Snapshot, Store

__all__ = ["Identity", "LockedError", "Refusal", "Saved", "Snapshot", "Store"]
