"""Claims about examples/fetcher.py: strangers write the links, and it asks nobody behind the firewall."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession

from examples.fetcher import is_public, links_of, only_to
from tests.rows import every

PRIVATE = (
    *(
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "0.0.0.0",  # noqa: S104
        "100.64.0.1",
    ),
    *(
        "255.255.255.255",
        "224.0.0.1",
        "192.0.2.1",
        "240.0.0.1",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fd00::1",
    ),
    *(
        "fec0::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:7f00:1::",
        "2001:db8::1",
    ),
)
PUBLIC = (
    "8.8.8.8",
    "1.1.1.1",
    "2606:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2002:808:808::",
)


ADDRESSES = [*PRIVATE, *PUBLIC]


def test_which_addresses_are_public() -> None:
    """Not those of private networks, of this machine, of links and groups, in whichever way they are written."""

    def check(address: str) -> None:
        assert is_public(address) == (address in PUBLIC)

    every(ADDRESSES, check)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0.0.0.0",  # noqa: S104
        "[::1]",
        "[::ffff:127.0.0.1]",
    ],
)
def test_a_link_to_this_machine_is_not_followed(host: str) -> None:
    """However its host is written: no connection is made, and the page may be tried again, as if it were away."""

    async def scene(url: str, accepted: list[Any]) -> None:
        async with ClientSession(connector=only_to(is_public)) as session:
            with pytest.raises((ClientError, ValueError)):
                await links_of(session, url)
        assert accepted == []
        async with ClientSession(connector=only_to(lambda _: True)) as session:
            if host in ("127.0.0.1", "localhost"):  # what is refused above would be there
                assert await links_of(session, url) == []
                assert len(accepted) == 1

    _served(host, scene)


def _served(host: str, scene: Callable[[str, list[Any]], Awaitable[None]]) -> None:
    accepted: list[Any] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def main() -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        async with await asyncio.start_server(answer, sock=listening):
            await scene(f"http://{host}:{listening.getsockname()[1]}/", accepted)

    asyncio.run(main())
