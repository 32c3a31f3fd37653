"""The workers of `server.peers`, on one page: each as it answers about itself, and who does not answer."""

import contextlib
import json
import socket
from http import HTTPStatus
from typing import Any

import pytest

from streamdedup import shape
from streamdedup.server import serving
from streamdedup.server.listener import Listener
from streamdedup.server.peers import ANSWER_BYTES_MAX, Peers, addresses_of, answer_of
from streamdedup.server.request import Page, Request, as_json
from streamdedup.server.route import Route, Routes
from streamdedup.settings import ServerOptions
from tests.server.test_server import HOST, status
from tests.test_shape import example

PATH = "/api/status"


def document(instance: str) -> dict[str, Any]:
    """That of a worker."""
    made: dict[str, Any] = example(shape.SCHEMA)
    made |= {"version": shape.VERSION}
    made["worker"]["instance"] = instance
    return made


def growing() -> Page:
    """The document of a worker whose names are short as they come, and long as we pass them on."""
    made = document("theirs")
    made["lists"] = [{**made["lists"][0], "name": "é" * shape.TEXT_MAX}] * 15
    made["findings"] = [{**made["findings"][0], "sentence": "é" * shape.TEXT_MAX}] * 15
    page = Page(HTTPStatus.OK, json.dumps(made, ensure_ascii=False))
    assert len(page.content) < ANSWER_BYTES_MAX
    return page


class Worker:
    """A server that answers as a worker, and what it was asked."""

    def __init__(self, page: Page) -> None:
        self.requests = list[Request]()
        self.page = page
        self._listener = Listener(HOST, 0, Routes([Route(PATH, self._answer)]))
        self.place = HOST, self._listener.port

    def _answer(self, request: Request) -> Page:
        self.requests.append(request)
        return self.page

    def close(self) -> None:
        """Stop answering."""
        self._listener.close()
        self._listener.join(5)


class Clock:
    """One that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


async def asked(*workers: Worker, instance: str = "ours") -> list[dict[str, Any]]:
    """What is known of these workers."""
    peers = Peers([worker.place for worker in workers], instance)
    found: list[dict[str, Any]] = json.loads(await peers.get())
    for worker in workers:
        worker.close()
    return found


async def test_a_peer_is_shown_as_it_answers() -> None:
    """Its document, without what it says of its own peers; asked for itself alone, at its address."""
    worker = Worker(as_json(document("theirs")))
    (peer,) = await asked(worker)
    assert (peer["answers"], peer["error"]) == (True, None)
    expected = document("theirs")
    del expected["peers"]
    assert peer["status"] == expected
    (request,) = worker.requests
    assert request.query == "local"
    assert request.headers["host"] == "{}:{}".format(*worker.place)


async def test_this_worker_is_no_peer_of_itself() -> None:
    """It is recognized by its instance, whatever its address; another one that answers twice is shown once."""
    ours, theirs, again = (Worker(as_json(document(name))) for name in ("ours", "theirs", "theirs"))
    found = await asked(ours, theirs, again)
    assert [peer["status"]["worker"]["instance"] for peer in found] == ["theirs"]


@pytest.mark.parametrize(
    ("page", "error"),
    [
        (as_json({}), "no worker of this version"),
        (Page(HTTPStatus(200), "[" * 100_000), "no worker of this version"),
        (Page(HTTPStatus(200), " " * (ANSWER_BYTES_MAX + 1)), "has more than 256,000 bytes"),
        (growing(), "has more than 256,000 bytes"),
        (Page(HTTPStatus(302), "", headers=(("Location", "http://127.0.0.1:1/"),)), "status 302"),
        (Page(HTTPStatus(500), ""), "status 500"),
    ],
    ids=["shape", "deep", "long", "growing", "redirect", "failed"],
)
async def test_what_is_no_answer_of_a_worker_is_an_error(page: Page, error: str) -> None:
    """One sentence says so, nothing of it is shown, and no redirect is followed."""
    (peer,) = await asked(Worker(page))
    assert (peer["answers"], peer["status"]) == (False, None)
    assert error in peer["error"]


async def test_who_does_not_answer_is_shown() -> None:
    """Nobody listens there, or somebody who says nothing within a second; the others are shown."""
    gone = Worker(as_json(document("gone")))
    gone.close()
    with socket.create_server((HOST, 0)) as silent:
        there = Worker(as_json(document("theirs")))
        peers = Peers([gone.place, silent.getsockname(), there.place], "ours")
        found = json.loads(await peers.get())
        there.close()
    assert [peer["answers"] for peer in found] == [False, False, True]
    assert found[1]["error"] == "it does not answer within 1 s"


async def test_peers_are_asked_every_two_seconds_at_most() -> None:
    """However often somebody looks; and not at all while nobody does."""
    worker, clock = Worker(as_json(document("theirs"))), Clock()
    peers = Peers([worker.place], "ours", clock)
    for _ in range(5):
        await peers.get()
    assert len(worker.requests) == 1
    clock.now = 100.0
    await peers.get()
    assert len(worker.requests) == 2
    worker.close()


async def test_a_name_stands_for_all_its_addresses() -> None:
    """As that of a headless service; one that has none is an error of its own."""
    worker = Worker(as_json(document("theirs")))

    def resolve(name: str, _port: int) -> list[str]:
        if name == "unknown":
            raise socket.gaierror(-2, "no such name")
        return [HOST, "127.0.0.2"]

    peers = Peers([("headless", worker.place[1]), ("unknown", 1)], "ours", resolve=resolve)
    found = json.loads(await peers.get())
    worker.close()
    assert [peer["address"] for peer in found] == [
        f"{HOST}:{worker.place[1]}",
        f"127.0.0.2:{worker.place[1]}",
        "unknown:1",
    ]
    assert [peer["answers"] for peer in found] == [True, False, False]
    assert found[2]["error"] == "the name unknown has no address"


async def test_three_workers_show_each_other() -> None:
    """Each page has the two others, and the document of each has the shape of one."""
    with contextlib.ExitStack() as stack:
        free = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(3)]
        ports = [each.getsockname()[1] for each in free]
    names = tuple(f"{HOST}:{port}" for port in ports)
    states = [status({}) for _ in ports]
    async with contextlib.AsyncExitStack() as running:
        for port, state in zip(ports, states, strict=True):
            state.source = None  # it has not joined
            options = ServerOptions(port=port, peers=names)
            await running.enter_async_context(serving(options, state))
        body = await answer_of((HOST, ports[0]), PATH)
        alone = await answer_of((HOST, ports[0]))
    made = json.loads(body)
    assert shape.fit(made) == made
    shown = [peer["status"]["worker"]["instance"] for peer in made["peers"]]
    assert shown == [state.instance for state in states[1:]]
    assert "peers" not in json.loads(alone)


def test_an_address_is_itself() -> None:
    """Without a name server."""
    assert addresses_of("127.0.0.1", 1) == ["127.0.0.1"]
    assert addresses_of("::1", 1) == ["::1"]
