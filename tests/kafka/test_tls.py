"""Claims about TLS contexts: made beside the loop, once for each state of their files, which may be rotated."""

import asyncio
import os
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.helpers import create_ssl_context
from structlog.testing import capture_logs

from streamdedup.errors import ConfigError
from streamdedup.kafka.client import tls
from streamdedup.kafka.client.connection import client_arguments
from streamdedup.kafka.options import KafkaOptions
from tests.broker.base import DEADLINE_S, Unavailable
from tests.broker.certificates import HOST, Certificates, make_certificates

NAMES = ("broker", "old", "new")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Make an authority, the certificate of a server, and two of ours."""
    try:
        return make_certificates(tmp_path_factory.mktemp("tls") / "made", NAMES)
    except Unavailable as reason:
        pytest.skip(str(reason))


class Mounted:
    """Our certificate as Kubernetes mounts it: names that are links into a directory that is replaced as a whole."""

    def __init__(self, directory: Path, certificates: Certificates) -> None:
        self._directory, self._certificates, self._times = directory, certificates, 0
        self.rotate("old")
        for name in ("tls.crt", "tls.key"):
            (directory / name).symlink_to(f"..data/{name}")
        self.options = KafkaOptions(
            bootstrap_servers="localhost:9092",
            group_id="dedup",
            security_protocol="SSL",
            ssl_cafile=certificates.authority,
            ssl_certfile=directory / "tls.crt",
            ssl_keyfile=directory / "tls.key",
        )

    def rotate(self, name: str, *, key_of: str | None = None) -> None:
        """Put the certificate of `name` in place, and its key or that of `key_of`."""
        self._times += 1
        fresh = self._directory / f"..{self._times}"
        fresh.mkdir()
        made = self._certificates
        (fresh / "tls.crt").write_bytes(made.certificate(name).read_bytes())
        (fresh / "tls.key").write_bytes(made.key(key_of or name).read_bytes())
        link = self._directory / "..new"
        link.symlink_to(fresh.name)
        link.replace(self._directory / "..data")


@pytest.fixture
def mounted(tmp_path: Path, certificates: Certificates) -> Mounted:
    """Mount the old certificate."""
    return Mounted(tmp_path, certificates)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads in which contexts were made, each time."""
    threads = []

    def noted(**given: Any) -> ssl.SSLContext:
        threads.append(threading.get_ident())
        made: ssl.SSLContext = create_ssl_context(**given)
        return made

    monkeypatch.setattr("streamdedup.kafka.client.tls.create_ssl_context", noted)
    return threads


@pytest.fixture
async def seen(certificates: Certificates) -> AsyncIterator[Callable[[Any], Any]]:
    """A server that wants our certificate; call it with a context to connect, and get the name that it saw."""
    wants = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates.authority)
    wants.load_cert_chain(certificates.certificate("broker"), certificates.key("broker"))
    wants.verify_mode = ssl.CERT_REQUIRED

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        [[[_, name]]] = writer.get_extra_info("peercert")["subject"]
        writer.write(f"{name}\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, HOST, 0, ssl=wants)
    port = server.sockets[0].getsockname()[1]

    async def connect(context: ssl.SSLContext) -> str:
        reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
        name = (await reader.readline()).decode().strip()
        writer.close()
        return name

    yield connect
    server.close()


async def test_many_clients_take_one_context_that_is_made_beside_the_loop(
    mounted: Mounted, made: list[int]
) -> None:
    """To make one takes 20 to 30 ms, in which the loop goes on."""
    arguments = [client_arguments(mounted.options) for _ in range(20)]
    contexts = {id(each["ssl_context"]) for each in await asyncio.gather(*arguments)}
    assert len(contexts) == len(made) == 1
    assert made[0] != threading.get_ident()


async def test_a_rotated_certificate_is_taken_by_clients_old_and_new(
    mounted: Mounted, made: list[int], seen: Callable[[Any], Any]
) -> None:
    """A consumer lives as long as the worker, and its next connection needs a certificate that is still valid."""
    old = (await client_arguments(mounted.options))["ssl_context"]
    assert await seen(old) == "old"
    mounted.rotate("new")
    with capture_logs() as lines:
        async with asyncio.timeout(DEADLINE_S):
            while await seen(old) != "new":
                pass
    assert [line["event"] for line in lines] == ["tls_files_loaded"]
    assert await seen((await client_arguments(mounted.options))["ssl_context"]) == "new"
    assert len(made) == 2
    mounted.rotate("old")
    assert await seen((await client_arguments(mounted.options))["ssl_context"]) == "old"
    assert threading.get_ident() not in made


async def test_files_that_do_not_fit_leave_those_before_in_force(
    mounted: Mounted, seen: Callable[[Any], Any]
) -> None:
    """Who copies a certificate and then its key leaves a moment in which they do not fit: it is logged, once."""
    await client_arguments(mounted.options)
    mounted.rotate("new", key_of="old")
    with capture_logs() as lines:
        for _ in range(3):
            assert await seen((await client_arguments(mounted.options))["ssl_context"]) == "old"
    [line] = lines
    assert (line["event"], line["log_level"]) == ("tls_files_refused", "error")
    assert line["reason"].startswith("kafka.ssl_cafile, ssl_certfile, ssl_keyfile: the files have ")
    mounted.rotate("new")
    assert await seen((await client_arguments(mounted.options))["ssl_context"]) == "new"


async def test_a_pipe_in_the_place_of_a_certificate_is_waited_for_by_nobody(
    mounted: Mounted, tmp_path: Path, seen: Callable[[Any], Any]
) -> None:
    """It is refused like any other file that cannot be loaded, and what takes its place is taken."""
    await client_arguments(mounted.options)
    (tmp_path / "tls.crt").unlink()
    os.mkfifo(tmp_path / "tls.crt")
    with capture_logs() as lines:
        async with asyncio.timeout(DEADLINE_S):
            assert await seen((await client_arguments(mounted.options))["ssl_context"]) == "old"
    assert "it is a pipe (FIFO), and must be a regular file" in lines[0]["reason"]
    (tmp_path / "tls.crt").unlink()
    (tmp_path / "tls.crt").symlink_to("..data/tls.crt")
    mounted.rotate("new")
    assert await seen((await client_arguments(mounted.options))["ssl_context"]) == "new"


async def test_files_that_never_fitted_are_the_operators_to_correct(mounted: Mounted) -> None:
    """Before the first connection there is nothing to go on with."""
    mounted.rotate("new", key_of="old")
    with pytest.raises(ConfigError, match=r"kafka\.ssl_cafile, .* cannot be loaded \(.*\); give"):
        await client_arguments(mounted.options)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Begin each test without contexts."""
    tls._following.cache_clear()
    yield
    tls._following.cache_clear()
