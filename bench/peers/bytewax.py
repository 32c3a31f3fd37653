"""Bytewax, in Python on a core in Rust: a set for each partition, as the state of a step."""

from functools import partial

from bench.peers.environment import Environment
from bench.peers.peer import Peer
from bench.worker.contenders import Clock

ENVIRONMENT = Environment("bytewax", ("3.11", "3.12"))


BYTEWAX = Peer(
    name="bytewax",
    what="Bytewax",
    command=partial(ENVIRONMENT.command, "bytewax_flow"),
    seconds_max=20.0,
    placed=False,
    clock=Clock.OUTPUT,
    version=ENVIRONMENT.version(),
    guarantee="none over a restart: it commits nothing, its sets are gone",
    configured="one worker, a set for each partition as the state of a step, batches of 1,000 events, no recovery; how"
    " far it is is taken from its output",
    prepare=ENVIRONMENT.prepare,
)
