"""De-duplication with Bytewax: a set for each partition of the input, as the state of a step, says what goes on."""

import signal
from collections.abc import Iterable
from typing import Any

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from bytewax.run import cli_main

from bench.worker.asked import Asked, asked, tell_assigned


class Source(KafkaSource):
    """A topic until SIGTERM, which Bytewax itself would die of, with events in hand."""

    def __init__(self, job: Asked) -> None:
        super().__init__([job.bootstrap], [job.source])
        self._ended = False
        signal.signal(signal.SIGTERM, self._end)

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Any:  # noqa: ANN401 - no public name
        """A partition."""
        partition = super().build_part(step_id, for_part, resume_state)
        read = partition.next_batch

        def next_batch() -> list[KafkaSourceMessage]:
            if self._ended:
                raise StopIteration
            return read()  # type: ignore[no-any-return]  # Bytewax is not installed where types are checked

        partition.next_batch = next_batch
        tell_assigned([int(for_part.partition("-")[0])])
        return partition

    def _end(self, *_: object) -> None:
        self._ended = True


def main() -> None:
    """Work until SIGTERM."""
    job = asked()
    flow = Dataflow("dedup")
    events = op.input("read", flow, Source(job))
    by_partition = op.key_on("by_partition", events, lambda event: str(event.partition))
    firsts = op.stateful_flat_map("first", by_partition, first)
    made = op.map("make", op.key_rm("bare", firsts), message)
    sink = KafkaSink([job.bootstrap], job.sink, {"compression.type": job.compression})
    op.output("write", made, sink)
    cli_main(flow)


def first(
    seen: set[bytes] | None, event: KafkaSourceMessage
) -> tuple[set[bytes], Iterable[KafkaSourceMessage]]:
    """The event, unless its key was seen before."""
    seen = set() if seen is None else seen
    if event.key in seen:
        return seen, ()
    seen.add(event.key)
    return seen, (event,)


def message(event: KafkaSourceMessage) -> KafkaSinkMessage:
    """For the output."""
    _, timestamp_ms = event.timestamp
    return KafkaSinkMessage(event.key, event.value, timestamp=timestamp_ms)


if __name__ == "__main__":
    main()
