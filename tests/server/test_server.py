"""What is claimed of the HTTP server and its probes, without a broker: what they say, and what they put up with."""

import asyncio
import http.client
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest

from streamdedup.delivery.lifecycle import State
from streamdedup.delivery.memory import FoldProgress
from streamdedup.metrics.counts import Meters
from streamdedup.metrics.findings import FILTER_FULL, GROUP_REFUSES, SECOND_WRITER
from streamdedup.server import Phase, Status, findings
from streamdedup.server.findings import LARGE_S_MAX, LOOKUP_S_MAX
from streamdedup.server.listener import Listener
from streamdedup.server.pulse import Pulse
from streamdedup.server.request import Page
from streamdedup.server.route import Routes, at_once
from streamdedup.server.routes import pages
from streamdedup.server.status import Copying
from tests.broker.base import DEADLINE_S, wait_until

HOST = "127.0.0.1"


# --- HTTP ---


def page() -> Page:
    """A page that is made at once."""
    return Page(HTTPStatus.OK, "text\n")


def failing() -> Page:
    """A page that quotes a key where it must not."""
    raise KeyError("jane.doe@example.org")


@pytest.fixture
def listener() -> Iterator[Listener]:
    """A server of two pages, one of which fails."""
    made = Listener(HOST, 0, Routes([at_once("/page", page), at_once("/fails", failing)]))
    yield made
    made.close()


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str, http.client.HTTPMessage]:
    """Status, text and headers of an answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=DEADLINE_S)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def say(port: int, request: bytes) -> bytes:
    """All that is answered to these bytes."""
    with socket.create_connection((HOST, port), timeout=DEADLINE_S) as connection:
        connection.sendall(request)
        parts = iter(lambda: connection.recv(4096), b"")
        return b"".join(parts)


def test_a_page_is_got(listener: Listener) -> None:
    """With its length and type; a query changes nothing; nothing tells what we are made of."""
    status, text, headers = ask(listener.port, "/page?x=1")
    assert (status, text) == (200, "text\n")
    assert headers["Content-Length"] == "5"
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert "Python" not in headers["Server"]


def test_a_head_is_got_without_its_page(listener: Listener) -> None:
    """HEAD has the same headers and no body."""
    status, text, headers = ask(listener.port, "/page", "HEAD")
    assert (status, text, headers["Content-Length"]) == (200, "", "5")


@pytest.mark.parametrize("path", ["/", "/pages", "/page/", "/../page", "/etc/passwd"])
def test_another_path_is_not_found(listener: Listener, path: str) -> None:
    """There are no directories; what there is, is said."""
    status, text, _ = ask(listener.port, path)
    assert status == 404
    assert "/page" in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_another_method_is_not_allowed(listener: Listener, method: str) -> None:
    """Whatever it is; and the two that are, are named."""
    status, _, headers = ask(listener.port, "/page", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /page HTTP/1.1 x\r\n\r\n", b"400"),
        (b"GET /page HTTP/7.0\r\nHost: h\r\n\r\n", b"505"),
        (b"GET /" + b"x" * 9000, b"431"),
        (b"GET /page HTTP/1.1\r\n" + b"h: x\r\n" * 2000, b"431"),
        (b"GET /page HTTP/1.1\r\n" + b"h: x\r\n" * 200 + b"\r\n", b"431"),
    ],
    ids=["nonsense", "four words", "version", "long line", "long head", "many headers"],
)
def test_a_request_that_is_none_is_refused(
    listener: Listener, request_: bytes, status: bytes
) -> None:
    """By its status, without waiting for more, and the next one is answered."""
    assert status in say(listener.port, request_).split(b"\n")[0]
    assert ask(listener.port, "/page")[0] == 200


def test_a_page_that_fails_tells_nothing(listener: Listener) -> None:
    """Status 500, and no word of the error, which may hold a key."""
    status, text, _ = ask(listener.port, "/fails")
    assert status == 500
    assert "jane" not in text


# --- livez ---


@contextmanager
def beating(pulse: Pulse) -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop, in a thread, with the pulse."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    task = asyncio.run_coroutine_threadsafe(pulse.beat(), loop)
    try:
        yield loop
    finally:
        task.cancel()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_livez_tells_of_a_loop_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the loop is held up it says so, from outside of the loop; afterwards all is well, and the stall is kept."""
    monkeypatch.setattr(findings, "STALL_S_MAX", 0.3)
    pulse = Pulse()
    livez = pages(status(), pulse)["/livez"]
    go_on = threading.Event()

    def tell() -> str:
        return f"it still says {livez()}"

    with beating(pulse) as loop:
        wait_until(lambda: livez() == Page(HTTPStatus.OK, "alive\n"), DEADLINE_S, tell)
        loop.call_soon_threadsafe(go_on.wait, DEADLINE_S)
        wait_until(lambda: livez().status == 503, DEADLINE_S, tell)
        assert re.fullmatch(r"the event loop has stood still for \d+ s\n", livez().text)
        go_on.set()
        wait_until(lambda: livez().status == 200, DEADLINE_S, tell)
        assert pulse.longest_s >= 0.3
        buckets, _ = pulse.stalls.read()
        assert buckets[-1][1] > dict(buckets)["0.25"]


# --- readyz ---


def shard(state: State, **parts: Any) -> Any:
    """A delivery, as far as the probes look at it."""
    snapshots = SimpleNamespace(waits=None)
    more = {
        "trouble": None,
        "fold": None,
        "snapshots": snapshots,
        **parts,
    }
    more.setdefault("beyond_capacity", False)
    more.setdefault("lookup_waits", lambda _above_s: None)
    more.setdefault("memory_waits", lambda _above_s: None)
    return SimpleNamespace(state=state, **more)


def status(
    deliveries: Mapping[int, Any] | None = None, *, phase: Phase = Phase.SERVING, epoch: int = 1
) -> Status:
    """A worker that was assigned the partitions of `deliveries` in epoch 1; None: it waits for the group."""
    assigned = None if deliveries is None else frozenset(deliveries)
    source: Any = SimpleNamespace(epoch=1, assigned=assigned, refused_since=None)
    return Status("events", dict(deliveries or {}), Meters(), phase, source=source, epoch=epoch)


def readyz(of: Status) -> tuple[int, list[str]]:
    """Its status and lines."""
    page = pages(of, Pulse())["/readyz"]()
    return page.status, page.text.splitlines()


def test_ready_is_who_is_live_in_all_that_is_assigned() -> None:
    """One shard that is not live makes the worker not ready, and is named with its state."""
    live = shard(State.LIVE)
    assert readyz(status({0: live, 1: live})) == (200, ["ready: 2 of events live"])
    for state in (State.ASSIGNED, State.FENCING, State.FOLDING):
        assert readyz(status({0: live, 1: shard(state)})) == (503, [f"events/1: {state.value}"])


def test_ready_is_who_has_nothing_to_do() -> None:
    """With more workers than partitions one has none: it stands by, and that is well."""
    code, (line,) = readyz(status({}))
    assert code == 200
    assert "more workers than partitions" in line


def test_what_holds_a_shard_up_is_told() -> None:
    """A fold with its share, a full filter and a stopped shard with what to do."""
    at: Any = SimpleNamespace(label=143)
    fold = FoldProgress(at, 100, 200)
    of = status(
        {
            0: shard(State.FOLDING, fold=fold),
            1: shard(
                State.FULL,
                trouble=FILTER_FULL.at(
                    "events/1", "full: its filter holds 5 keys of 5", "raise filter.capacity"
                ),
            ),
            2: shard(
                State.STOPPED,
                trouble=SECOND_WRITER.at("events/2", "stopped: out/2 has a second writer"),
            ),
        }
    )
    assert readyz(of) == (
        503,
        [
            "events/0: folding, 43% of the output from offset 100 to 200",
            "events/1: full: its filter holds 5 keys of 5; raise filter.capacity",
            "events/2: stopped: out/2 has a second writer",
        ],
    )
    assert (fold.ratio, fold.position) == (0.43, 143)
    fold.end_now()
    assert (fold.ratio, fold.position) == (1.0, 200)


@pytest.mark.finding("middle-not-purged", "repartition-held", "group-of-another-protocol")
def test_what_is_around_a_middle_topic_is_told() -> None:
    """Of the second stage and of the first one, by the topics that each reads."""
    of, copying = status({0: shard(State.LIVE)}), status({})
    purge: Any = SimpleNamespace(failed={0: "TimeoutError", 2: "TimeoutError"})
    stage: Any = SimpleNamespace(
        trouble=None, waits=None, copying=True, stopped={}, paused=None, held="1 partition waits"
    )
    sources: Any = SimpleNamespace(epoch=1, assigned=frozenset())
    of.purge, of.copying = purge, Copying(copying, "middle", stage=stage, sources=sources)
    copying.group_shared_with = 2
    assert readyz(of)[1] == [
        "ready: 1 of events live",
        "warning: events: what was read could not be deleted from 2 partitions (TimeoutError); it is tried again, and"
        " the disk fills up meanwhile; check the brokers, and the right Delete on it",
        "note: events: 1 partition waits",
        "warning: 2 members of the new group protocol (KIP-848) took partitions of the first stage's group; stop them,"
        " or give them another group.id; `streamdedup reset` moves the offsets back if they committed any",
    ]


@pytest.mark.finding("snapshot-waits", "lookup-waits", "large-batch-waits")
def test_what_a_shard_waits_for_on_this_machine_is_told() -> None:
    """A short wait of a live shard is none; the words are those of the threads and of the permits."""
    waits: Any = SimpleNamespace(waits="waits for the disk, for 7 s now")

    def after(limit_s: float) -> Callable[[float], str | None]:
        return lambda above_s: "waits, for 9 s now" if above_s <= limit_s else None

    of = {
        0: shard(State.FOLDING, snapshots=waits),
        1: shard(State.LIVE, lookup_waits=after(LOOKUP_S_MAX)),
        2: shard(State.LIVE, memory_waits=after(LARGE_S_MAX)),
        3: shard(State.FENCING, memory_waits=after(LARGE_S_MAX)),
        4: shard(State.LIVE, lookup_waits=after(LOOKUP_S_MAX / 2)),
    }
    assert readyz(status(of))[1] == [
        "events/0: folding, waits for the disk, for 7 s now",
        "events/1: live, waits, for 9 s now",
        "events/2: live, waits, for 9 s now",
        "events/3: fencing, waits, for 9 s now",
    ]


def test_an_assignment_that_is_not_taken_over_yet_is_not_ready() -> None:
    """Shards of the assignment before may still look live; so may those that the group is about to take."""
    live = {0: shard(State.LIVE)}
    waiting = (503, ["waiting for the group to assign partitions"])
    assert readyz(status(live, epoch=0)) == waiting
    assert readyz(status(None)) == waiting
    unknown = status(live)
    unknown.deliveries = {}
    assert readyz(unknown) == (503, ["events/0: assigned"])


@pytest.mark.parametrize("phase", [Phase.CONNECTING, Phase.JOINING, Phase.DRAINING])
def test_before_and_after_it_serves_it_is_not_ready(phase: Phase) -> None:
    """Even where its shards are live, as they are for a moment when a drain begins."""
    code, (line,) = readyz(status({0: shard(State.LIVE)}, phase=phase))
    assert code == 503
    assert line.startswith(phase.value)


@pytest.mark.finding("draining", "group-of-another-configuration")
@pytest.mark.parametrize("phase", [Phase.JOINING, Phase.SERVING])
def test_a_group_that_refuses_is_the_reason(phase: Phase) -> None:
    """At the start, and after a membership; also before it is known who is there. A drain says that it is one."""
    refused = status(None, phase=phase)
    source: Any = refused.source
    source.refused_since = 3.0
    code, (line,) = readyz(refused)
    assert (code, line.split(";")[0]) == (503, "the group refuses this worker")
    refused.group_says = GROUP_REFUSES.at(None, "the group is of another configuration")
    assert readyz(refused) == (503, ["the group is of another configuration"])
    refused.phase = Phase.DRAINING
    assert readyz(refused) == (503, ["draining"])
    refused.phase, source.refused_since = phase, None
    assert "another configuration" not in readyz(refused)[1][0]


@pytest.mark.finding("loop-stands")
def test_a_loop_that_stands_still_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the shards say: nobody runs them."""
    monkeypatch.setattr(findings, "STALL_S_MAX", -1.0)
    code, (line,) = readyz(status({0: shard(State.LIVE)}))
    assert code == 503
    assert "stood still" in line
