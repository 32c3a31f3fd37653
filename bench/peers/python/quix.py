"""De-duplication with Quix Streams: a state by key, in RocksDB and with a changelog, says what is passed on."""

import sys
from pathlib import Path

from quixstreams import Application, State

from bench.worker.asked import asked, tell_assigned

COMMIT_INTERVAL_S = 0.1
SEEN = "seen"


def main() -> None:
    """Work until SIGTERM, which the application takes care of."""
    job = asked()
    application = Application(
        job.bootstrap,
        consumer_group=job.group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once" if job.exactly_once else "at-least-once",
        commit_interval=COMMIT_INTERVAL_S,
        state_dir=Path(sys.argv[1]).parent / "state",
        producer_extra_config={"compression.type": job.compression},
        on_message_processed=Teller().processed,
    )
    source, sink = (
        application.topic(name, value_deserializer="bytes", value_serializer="bytes")
        for name in (job.source, job.sink)
    )
    application.dataframe(source).filter(is_first, stateful=True).to_topic(sink)
    application.run()


def is_first(_value: bytes, state: State) -> bool:
    """Whether its key, whose state this is, comes for the first time."""
    if state.exists(SEEN):
        return False
    state.set_bytes(SEEN, b"1")
    return True


class Teller:
    """Says that there are partitions when the first event is done: the application has no word for it before."""

    def __init__(self) -> None:
        self._told = False

    def processed(self, _topic: str, partition: int, _offset: int) -> None:
        """An event is done."""
        if not self._told:
            tell_assigned([partition])
            self._told = True


if __name__ == "__main__":
    main()
