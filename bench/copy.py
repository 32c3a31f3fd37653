"""`make bench-copy`: the worker, exactly once, against a plain copy of the same topic through aiokafka.

Both read the same 120-byte events from a real broker on this machine, in interleaved rounds, each in a process of its
own; the clock runs from the first assignment to the last commit or acknowledgement. The copy judges nothing and has no
transactions. Outputs are counted, so a round that lost something fails.
"""

import argparse
import asyncio
import json
import logging
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.machine import machine
from tests.broker.ladder import find_broker
from tests.broker.topics import Event, create_topic, produce, read_all, unique_name

PARTITIONS = 4
DUPLICATE_SHARE = 0.2
FILLER = b"x" * 64
CONTENDERS = ("copy", "worker")


def main() -> int:
    """Run the rounds and print the table."""
    arguments = _arguments()
    if arguments.contender:
        seconds = asyncio.run(_contend(arguments))
        print(json.dumps(seconds))
        return 0
    broker = find_broker()
    try:
        _compare(broker.bootstrap_servers, arguments.events, arguments.rounds)
    finally:
        broker.close()
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    for hidden in ("contender", "bootstrap", "source", "sink"):
        parser.add_argument(f"--{hidden}", help=argparse.SUPPRESS)
    return parser.parse_args()


def _compare(bootstrap: str, events: int, rounds: int) -> None:
    print(machine("aiokafka", "numba", "numpy", "mmh3"), "(shared with the broker)", sep="\n")
    source = unique_name("bench-in")
    create_topic(bootstrap, source, PARTITIONS)
    produce(bootstrap, source, _events(events))
    distinct = len({(r.partition, r.key) for r in read_all(bootstrap, source)})
    print(f"{events:,} events, {distinct:,} distinct, {PARTITIONS} partitions\n")
    rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for number in range(1, rounds + 1):
        for name in CONTENDERS:
            seconds = _round(name, bootstrap, source, events, distinct)
            rates[name].append(events / seconds)
            print(f"round {number}  {name:<7} {events / seconds:>10,.0f} events/s", flush=True)
    ratios = [ours / theirs for ours, theirs in zip(rates["worker"], rates["copy"], strict=True)]
    print()
    for name, label in (("copy", "plain aiokafka copy"), ("worker", "streamdedup, exactly once")):
        print(f"{label:<28} {statistics.median(rates[name]):>10,.0f} events/s (median of {rounds})")
    print(f"{'ratio, round by round':<28} {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    print(f"{'ratio, median':<28} {statistics.median(ratios):>10.2f}")


def _events(count: int) -> Iterator[Event]:
    chance, seen = random.Random(1), 0
    for _ in range(count):
        if seen and chance.random() < DUPLICATE_SHARE:
            number = chance.randrange(seen)
        else:
            number, seen = seen, seen + 1
        key = b"user%012d@example.com" % number
        yield number % PARTITIONS, key, b'{"email":"%b"}' % key + FILLER, [], None


def _round(name: str, bootstrap: str, source: str, events: int, distinct: int) -> float:
    sink = unique_name(f"bench-{name}")
    create_topic(bootstrap, sink, PARTITIONS)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench.copy", "--contender", name, "--events", str(events)),
            *("--bootstrap", bootstrap, "--source", source, "--sink", sink),
        ],
        stdout=subprocess.PIPE,
        check=True,
    )
    emitted = len(read_all(bootstrap, sink))
    expected = distinct if name == "worker" else events
    if emitted != expected:
        raise SystemExit(f"{name} emitted {emitted:,} events instead of {expected:,}")
    return float(json.loads(done.stdout))


async def _contend(arguments: argparse.Namespace) -> float:
    run = _copy if arguments.contender == "copy" else _deduplicate
    return await run(arguments)


async def _copy(arguments: argparse.Namespace) -> float:
    """What one would write by hand: poll, append to batches, send, commit."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    consumer = AIOKafkaConsumer(
        bootstrap_servers=arguments.bootstrap,
        group_id=unique_name("copy"),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=4 << 20,
    )
    consumer.subscribe([arguments.source])
    producer = AIOKafkaProducer(
        bootstrap_servers=arguments.bootstrap, acks="all", max_batch_size=900_000
    )
    await asyncio.gather(consumer.start(), producer.start())
    while not consumer.assignment():
        await asyncio.sleep(0.01)
    started, copied = time.perf_counter(), 0
    while copied < arguments.events:
        sends = []
        for where, records in (await consumer.getmany(timeout_ms=200, max_records=20_000)).items():
            batch = producer.create_batch()
            for record in records:
                event = {"timestamp": record.timestamp, "key": record.key, "value": record.value}
                if batch.append(**event, headers=list(record.headers)) is None:
                    sends.append(
                        await producer.send_batch(batch, arguments.sink, partition=where.partition)
                    )
                    batch = producer.create_batch()
                    batch.append(**event, headers=list(record.headers))
            sends.append(
                await producer.send_batch(batch, arguments.sink, partition=where.partition)
            )
            copied += len(records)
        await asyncio.gather(*sends)
        await consumer.commit()
    seconds = time.perf_counter() - started
    await consumer.stop()
    await producer.stop()
    return seconds


async def _deduplicate(arguments: argparse.Namespace) -> float:
    """The worker as `streamdedup run` runs it."""
    from streamdedup import logs, settings
    from streamdedup.worker import Worker

    logs.set_up(logging.WARNING)

    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "config.yaml"
        config.write_text("{}", "utf-8")
        overrides = {
            "kafka.bootstrap_servers": arguments.bootstrap,
            "kafka.group_id": unique_name("bench"),
            "source.topic": arguments.source,
            "key.from": "key",
            "filter.capacity": "10M",
            "sink.topic": arguments.sink,
            "snapshot.directory": directory,
        }
        tree = settings.load(config, [f"{name}={value}" for name, value in overrides.items()], {})
        worker = Worker(tree)
        running = asyncio.create_task(worker.run())
        while not any(delivery.busy for delivery in worker.deliveries.values()):
            await asyncio.sleep(0.01)
        started = time.perf_counter()
        while worker.tally.consumed < arguments.events:
            await asyncio.sleep(0.01)
        seconds = time.perf_counter() - started
        worker.stop()
        await running
        return seconds


if __name__ == "__main__":
    sys.exit(main())
