"""A filter with its label on disk: saved while it goes on filling, loaded only if beyond doubt."""

from streamdedup.snapshot.format import Identity
from streamdedup.snapshot.store import Refusal, Saved, Snapshot, Store

__all__ = ["Identity", "Refusal", "Saved", "Snapshot", "Store"]
