"""Lookups in Redis, with a filter in front of it and without: how many a second, and the load on the server.

    python examples/lookaside.py --keys 1000000 --lookups 100000

It starts a `redis-server` of its own, which holds so many keys, on a Unix socket in a temporary directory. It needs the
packages streamdedup-kafka and redis.
"""

import argparse
import os
import platform
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import redis

import streamdedup

Value = bytes | str
LookUp = Callable[[list[str]], Sequence[Value | None]]

PRESENT = (0.01, 0.5)  # the shares of lookups whose keys are in the store
BATCH = 1000
START_S = 30


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the keys, scan them into a filter, and look keys up in each way."""
    parser = argparse.ArgumentParser(description="Lookups in Redis, with a filter and without.")
    parser.add_argument("--keys", type=int, default=1_000_000, help="that Redis holds")
    parser.add_argument("--lookups", type=int, default=100_000, help="of each measurement")
    given = parser.parse_args(arguments)
    with server() as client:
        print_machine(client)
        keys = [f"user:{number}" for number in range(given.keys)]
        for batch in batches(keys):
            client.mset(dict.fromkeys(batch, "a value"))
        users = in_front_of(client, given.keys)
        with users.writing("user:new"):  # added before it is written, so that every lookup finds it
            client.set("user:new", "a value")
        print(f"user:new: {users.get('user:new')!r}")

        print("\n| Keys present | Lookups | Asked of Redis | Lookups/s | Processor of Redis |")
        print("|---|---|---|---|---|")
        for share in PRESENT:
            wanted = drawn(keys, given.lookups, share)
            for way, look_up in ways(client, users):
                print(
                    f"| {share * 100:g} % | {way} | {measured(client, wanted, look_up)} |",
                    flush=True,
                )


def in_front_of(client: redis.Redis, keys: int) -> streamdedup.Lookaside[str, Value]:
    """A filter in front of `client`, filled by a scan."""
    seen = streamdedup.build({"kind": "blocked", "capacity": 2 * keys, "error_rate": 0.001})
    users = streamdedup.Lookaside[str, Value](seen, client.get, client.mget)
    began, cursor = time.perf_counter(), -1
    with users.fill() as fill:
        while cursor != 0:
            cursor, found = client.scan(max(cursor, 0), count=BATCH)
            fill.add_many(found)
    print(f"{users.filter}, filled in {time.perf_counter() - began:.1f} s")
    return users


def drawn(keys: Sequence[str], lookups: int, share: float) -> list[str]:
    """Keys to look up, of which `share` are present, in random order."""
    chance = random.Random(1)  # the same keys for each way
    present = chance.choices(keys, k=round(lookups * share))
    wanted = present + [f"nobody:{chance.getrandbits(64)}" for _ in range(lookups - len(present))]
    chance.shuffle(wanted)
    return wanted


def ways(
    client: redis.Redis, users: streamdedup.Lookaside[str, Value]
) -> Iterator[tuple[str, LookUp]]:
    """Each way to look keys up, by its name."""
    yield "Redis alone, one by one", lambda keys: [client.get(key) for key in keys]
    yield "with the filter, one by one", lambda keys: [users.get(key) for key in keys]
    yield f"Redis alone, {BATCH:,} at once", client.mget
    yield f"with the filter, {BATCH:,} at once", users.get_many


def measured(client: redis.Redis, wanted: Sequence[str], look_up: LookUp) -> str:
    """The share that Redis was asked for, lookups a second, and microseconds of Redis' processor for each lookup."""
    look_up(list(wanted[:BATCH]))  # compiles
    (asked, worked_s), began = load(client), time.perf_counter()
    for batch in batches(wanted):
        look_up(batch)
    took_s = time.perf_counter() - began
    asked_then, worked_then_s = load(client)
    share, worked_us = (
        (asked_then - asked) / len(wanted),
        (worked_then_s - worked_s) / len(wanted) * 1e6,
    )
    return f"{share * 100:.2f} % | {len(wanted) / took_s:,.0f} | {worked_us:.2f} µs a lookup"


def load(client: redis.Redis) -> tuple[int, float]:
    """By Redis' own account: the keys that it has looked up, and the seconds that its processor has worked."""
    stats, cpu = client.info("stats"), client.info("cpu")
    return (
        stats["keyspace_hits"] + stats["keyspace_misses"],
        cpu["used_cpu_user"] + cpu["used_cpu_sys"],
    )


def batches(keys: Sequence[str]) -> Iterator[list[str]]:
    """The keys in lists of BATCH."""
    rest = iter(keys)
    while batch := list(islice(rest, BATCH)):
        yield batch


@contextmanager
def server() -> Iterator[redis.Redis]:
    """A client of a new `redis-server`, which ends with the block."""
    program = shutil.which("redis-server")
    if program is None:
        sys.exit("there is no redis-server; install it (Debian: apt install redis-server)")
    with TemporaryDirectory() as directory:
        socket = Path(directory) / "redis.sock"
        command = [program, "--port", "0", "--unixsocket", str(socket), "--save", ""]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=directory)
        try:
            yield connected(socket)
        finally:
            process.terminate()
            process.wait()


def connected(socket: Path) -> redis.Redis:
    """A client of the server on `socket`, once that answers."""
    client, deadline = redis.Redis(unix_socket_path=str(socket)), time.monotonic() + START_S
    while True:
        try:
            client.ping()
        except redis.ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return client


def print_machine(client: redis.Redis) -> None:
    """Print the machine and the versions."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("streamdedup-kafka", "redis"))
    print(f"{platform.platform()}, {platform.machine()}, {os.cpu_count()} cores")
    print(
        f"Python {platform.python_version()}, {packages}, Redis {client.info()['redis_version']} on a Unix socket"
    )


if __name__ == "__main__":
    main()
