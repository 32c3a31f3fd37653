"""All peers, and a digest of what they are made of: they are measured again when it changes."""

import hashlib
from pathlib import Path

from bench.peers.bytewax import BYTEWAX
from bench.peers.java_client import JAVA_CLIENT
from bench.peers.kafka_streams import DEFAULTS, MEMORY, ROCKSDB
from bench.peers.peer import Peer
from bench.peers.quix import QUIX, QUIX_AT_LEAST_ONCE
from bench.peers.tkati import TKATI

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        *(MEMORY, ROCKSDB, DEFAULTS, JAVA_CLIENT),
        *(TKATI, BYTEWAX, QUIX, QUIX_AT_LEAST_ONCE),
    )
}


def code_id() -> str:
    """Changes with any file of this package."""
    here, digest = Path(__file__).parent, hashlib.sha256()
    for path in sorted(here.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(str(path.relative_to(here)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]
