"""For tests of whole workers without Kafka: a broker in memory, a virtual clock, and disks and networks that fail.

`Worker(settings, connect=connected_to(broker))` runs the real worker over a `MemoryBroker`. See docs/testing.md.
"""

from streamdedup.testing.broker import MemoryBroker
from streamdedup.testing.clock import Process, StuckError, VirtualLoop
from streamdedup.testing.cluster import connected_to
from streamdedup.testing.faults import Chances, FaultyNetwork
from streamdedup.testing.files import FailingFs, PowerFs, WatchedFs
from streamdedup.testing.log import Logged, MemoryLog
from streamdedup.testing.network import HangingNetwork
from streamdedup.testing.threads import KilledError, Thread

__all__ = [
    "Chances",
    "FailingFs",
    "FaultyNetwork",
    "HangingNetwork",
    "KilledError",
    "Logged",
    "MemoryBroker",
    "MemoryLog",
    "PowerFs",
    "Process",
    "StuckError",
    "Thread",
    "VirtualLoop",
    "WatchedFs",
    "connected_to",
]
