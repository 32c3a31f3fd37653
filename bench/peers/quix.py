"""Quix Streams, in Python: a state by key, in RocksDB with a changelog."""

from dataclasses import replace
from pathlib import Path

from bench.peers.environment import Environment
from bench.peers.peer import Peer
from bench.worker.cases import Case
from bench.worker.contenders import Topics

ENVIRONMENT = Environment("quixstreams", ("3.11", "3.12", "3.13", "3.14"))
CONFIGURED = "one process, a state by key in RocksDB with a changelog, a checkpoint every 100 ms"


def _exactly_once(case: Case, topics: Topics, directory: Path) -> list[str]:
    return ENVIRONMENT.command("quix", case, topics, directory)


def _at_least_once(case: Case, topics: Topics, directory: Path) -> list[str]:
    return _exactly_once(replace(case, guarantee="at_least_once"), topics, directory)


QUIX = Peer(
    name="quix-streams",
    what="Quix Streams, exactly once",
    command=_exactly_once,
    seconds_max=20.0,
    placed=False,
    version=ENVIRONMENT.version(),
    guarantee="exactly once",
    configured=CONFIGURED,
    prepare=ENVIRONMENT.prepare,
)
QUIX_AT_LEAST_ONCE = replace(
    QUIX,
    name="quix-streams-at-least-once",
    what="Quix Streams, at least once",
    command=_at_least_once,
    guarantee="at least once",
)
