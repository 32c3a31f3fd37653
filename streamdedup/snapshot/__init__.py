"""A filter on disk, in a file of its own or with its label: saved whole, loaded only if beyond doubt."""

from streamdedup.snapshot.header import Identity
from streamdedup.snapshot.store import Refusal, Saved, Snapshot, Store

__all__ = ["Identity", "Refusal", "Saved", "Snapshot", "Store"]
