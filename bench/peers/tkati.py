"""tkati-node-dedup, in Python on a core in Rust: keys of the last hours, in RocksDB."""

from functools import partial

from bench.peers.environment import Environment
from bench.peers.peer import Peer

ENVIRONMENT = Environment("tkati-node-dedup", ("3.13", "3.14"))


TKATI = Peer(
    name="tkati-node-dedup",
    what="tkati-node-dedup",
    command=partial(ENVIRONMENT.command, "tkati"),
    seconds_max=15.0,
    placed=False,
    version=ENVIRONMENT.version(),
    guarantee="at least once; a key is forgotten after 3 to 4 hours, some at a kill",
    configured="batches of 20,000 events, a window of 3 hours; the key is the field of the JSON value, the only one"
    " that it knows, and it writes value and timestamp anew",
    prepare=ENVIRONMENT.prepare,
)
