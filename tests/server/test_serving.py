"""What is claimed of a worker's server as it is configured: its ports, its page, its token."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamdedup import server
from streamdedup.errors import ConfigError
from streamdedup.server import serving
from streamdedup.server.files import TYPES, files
from streamdedup.settings import ServerOptions
from tests.local import until
from tests.server.test_server import ask, status


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[list[int]]:
    """The ports of a server with these options, as the log names them."""
    with capture_logs() as lines:
        async with serving(ServerOptions(**options), status({})):
            yield [line["port"] for line in lines if line["event"] == "server_listens"]


async def got(port: int, path: str) -> tuple[int, str]:
    """The status and text of a page."""
    return (await asyncio.to_thread(ask, port, path))[:2]


async def logged(lines: Sequence[MutableMapping[str, Any]], event: str) -> None:
    """Wait until a line of this event is there."""
    await until(
        lambda: any(line["event"] == event for line in lines), lambda: f"no {event}: {lines}"
    )


async def test_a_port_of_their_own_has_only_the_probes() -> None:
    """Nobody who asks there for something else gets it; the other port has the probes, too."""
    async with served(port=0, probe_port=0) as (everything, probes):
        for port in (everything, probes):
            assert (await got(port, "/readyz"))[0] == 200
            assert (await got(port, "/livez"))[0] == 200
        for path in ("/", "/metrics", "/page.css"):
            assert (await got(probes, path))[0] == 404
        assert (await got(everything, "/metrics"))[0] == 200


async def test_probes_may_be_all_that_is_served() -> None:
    """With `probe_port` alone there is no other port."""
    async with served(probe_port=0) as (port,):
        assert (await got(port, "/readyz"))[0] == 200


async def test_without_a_port_there_is_no_server() -> None:
    """And no line about one."""
    async with served() as ports:
        assert ports == []


async def test_a_probe_port_that_is_taken_is_named() -> None:
    """With the option, and the other port is free again."""
    async with served(port=0) as (taken,):
        with pytest.raises(ConfigError, match=rf"server\.probe_port = {taken}: cannot listen"):
            async with served(port=0, probe_port=taken):
                pass


async def test_the_page_is_served_as_it_is_in_the_wheel() -> None:
    """Each of its files, by its name and with its type."""
    folder = Path(server.__file__).parent / "page"
    routes = {route.path for route in files()}
    assert "/" in routes
    async with served(port=0) as (port,):
        for path in routes:
            name = "index.html" if path == "/" else path.removeprefix("/")
            code, text, headers = await asyncio.to_thread(ask, port, path)
            assert (code, text) == (200, (folder / name).read_text("utf-8"))
            suffix = Path(name).suffix
            assert headers["Content-Type"] == TYPES.get(suffix, "text/html; charset=utf-8")


async def test_a_token_is_read_again_while_the_worker_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log says so, and says it once if the file holds none, with the remedy."""
    monkeypatch.setattr(server, "LOOK_S", 0.01)
    file = tmp_path / "token"
    file.write_text("a" * 16)
    with capture_logs() as lines:
        async with serving(ServerOptions(port=0, token_file=file), status({})):
            for content, event in (("b" * 17, "token_changed"), ("short", "token_refused")):
                file.write_text(content)
                await logged(lines, event)
    (refused,) = (line for line in lines if line["event"] == "token_refused")
    assert "openssl rand" in refused["reason"]
    assert not [line for line in lines if "b" * 17 in str(line)]
