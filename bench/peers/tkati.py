"""tkati-node-dedup, in Python on a core in Rust: keys of the last hours, in RocksDB."""

from pathlib import Path

from bench.peers.environment import Environment
from bench.peers.peer import Peer
from bench.worker.cases import Case
from bench.worker.contenders import Topics

ENVIRONMENT = Environment("tkati-node-dedup", ("3.13", "3.14"))


def _command(case: Case, topics: Topics, directory: Path) -> list[str]:
    return ENVIRONMENT.command("tkati", case, topics, directory)


TKATI = Peer(
    name="tkati-node-dedup",
    what="tkati-node-dedup",
    command=_command,
    judges=True,
    seconds_max=15.0,
    placed=False,
    version=ENVIRONMENT.version(),
    guarantee="at least once; a key is forgotten after 3 to 4 hours, some at a kill",
    configured="batches of 20,000 events, a window of 3 hours; the key is the field of the JSON value, the only one"
    " that it knows, and it writes value and timestamp anew",
    prepare=ENVIRONMENT.prepare,
)
