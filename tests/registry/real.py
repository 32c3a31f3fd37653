"""A real registry, Apicurio's with Confluent's REST API: fetched once, a process that has all in memory."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamdedup.kafka.registry_options import SchemaRegistryOptions
from streamdedup.registry.client import Client, RegistryAwayError
from tests.archives import unpack
from tests.broker.base import DEADLINE_S, Unavailable, free_ports, wait_until
from tests.broker.jars import jars_of
from tests.broker.java import find_java
from tests.broker.leash import on_leash
from tests.broker.versions import REGISTRY_LOCK


@pytest.fixture(scope="session")
def registry_url() -> Iterator[str]:
    """Give the address of a registry; without Java, or its archive, the test is skipped."""
    try:
        with running() as url:
            yield url
    except Unavailable as why:
        pytest.skip(str(why))


@contextmanager
def running() -> Iterator[str]:
    """Start a registry, and end it; raises `Unavailable`."""
    java, (archive,) = find_java(), jars_of(REGISTRY_LOCK)
    directory = Path(tempfile.mkdtemp(prefix="streamdedup-registry-"))
    unpack(archive, directory)
    (jar,) = directory.glob("*-runner.jar")
    (port,) = free_ports(1)
    options = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    http = ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]
    log = directory / "registry.log"
    process = on_leash(directory, [java, *options, *http, "-jar", str(jar)], log)
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    try:
        wait_until(lambda: _answers(process, url), DEADLINE_S, lambda: log.read_text()[-2000:])
        yield url
    finally:
        process.communicate()  # lets go of it, so it ends, and its directory is removed


def _answers(process: "subprocess.Popen[bytes]", url: str) -> bool:
    if process.poll() is not None:
        raise Unavailable(f"the registry ended with status {process.returncode}")
    try:
        Client(SchemaRegistryOptions(url=url)).check()
    except RegistryAwayError:
        return False
    return True
