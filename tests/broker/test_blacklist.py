"""Claims about a block list while events flow: files that are replaced, changes from a topic, what must not harm."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tests.broker.base import DEADLINE_S, wait_until
from tests.broker.topics import end_offsets, read_all
from tests.deployment import Deployment
from tests.lists.screening import blocked, build, command, header

FOLLOWED_S = 2.0  # what the documentation promises
FEED_EVERY_S = 0.02


@contextmanager
def again_and_again(feed: Callable[[], None]) -> Iterator[None]:
    """Call `feed` in a thread, one time after the other, until the end.

    The pause between two calls leaves a busy machine time for what the test waits for.
    """
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(FEED_EVERY_S):
            feed()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def flowing(deployment: Deployment, local: str, domains: Sequence[str]) -> Iterator[None]:
    """Events of all `domains` in turn, to both partitions, until the end; no address comes twice."""
    numbers = count(step=40)

    def feed() -> None:
        number = next(numbers)
        addresses = [f"{number + n}@{domains[n % len(domains)]}" for n in range(40)]
        deployment.feed(
            (p, None, f"{local}{p}.{a}".encode(), [], None) for a in addresses for p in (0, 1)
        )

    with again_and_again(feed):
        yield


def more_are_blocked(deployment: Deployment, count: int) -> None:
    """Wait until at least so many events more are.

    Their topic is not read for that, as it grows with the wait: each transaction adds an event or more, and a marker.
    """
    topic = deployment.config["sink"]["blocked_topic"]

    def held() -> int:
        return sum(end_offsets(deployment.bootstrap, topic).values())

    enough = held() + 2 * count
    wait_until(lambda: held() >= enough, DEADLINE_S, lambda: "none is blocked")


def versions_in_order(deployment: Deployment) -> Mapping[int, list[str]]:
    """Which versions blocked events of each partition, each once, as they follow each other by the events' offsets."""
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for letter in blocked(deployment):
        at = int(header(letter, "offset"))
        found[int(header(letter, "partition"))].append((at, header(letter, "list-version")))
    return {
        partition: list(dict.fromkeys(version for _, version in sorted(letters)))
        for partition, letters in found.items()
    }


def test_no_event_is_judged_by_half_a_list(screened: Deployment, tmp_path: Path) -> None:
    """While events flow the file is replaced, three times: versions follow each other; each judged what it holds."""
    path, domains = tmp_path / "block.list", [f"d{n}.example" for n in range(4)]
    versions = [build(path, [f"@{domains[0]}", "@always.example"])]
    with screened.running() as worker, flowing(screened, "a", [*domains, "always.example"]):
        worker.wait_for("shard_live", 2)
        for number in (1, 2, 3):
            versions.append(build(path, [f"@{domains[number]}", "@always.example"]))
            wait_until(
                lambda: worker.events("list_in_force")[-1]["version"].startswith(versions[-1]),
                DEADLINE_S,
                lambda: str(worker.events()[-5:]),
            )
            more_are_blocked(screened, 200)
    assert len(set(versions)) == 4
    for seen in versions_in_order(screened).values():
        assert [version.partition("+")[0] for version in seen] == versions
    for letter in blocked(screened):
        number = versions.index(header(letter, "list-version").partition("+")[0])
        assert (letter.value or b"").rpartition(b"@")[2].decode() in {
            domains[number],
            "always.example",
        }
    by_offset = {
        (r.partition, r.offset): r.value for r in read_all(screened.bootstrap, screened.source)
    }
    last = {
        (p, int(header(r, "offset"))): header(r, "list-version").partition("+")[0]
        for r in blocked(screened)
        for p in [int(header(r, "partition"))]
    }
    passed = {r.value for r in read_all(screened.bootstrap, screened.sink)}
    assert not {value for place, value in by_offset.items() if place in last} & passed


def test_single_changes_follow_within_two_seconds(screened: Deployment, tmp_path: Path) -> None:
    """On two workers of a group: what is added is blocked, what is removed passes, whatever the list says."""
    build(tmp_path / "block.list", ["listed@x.example", "@listed.example", ".tree.example"])
    config = str(screened.write_config())
    with screened.running("one.log") as one, screened.running("two.log") as two:
        for worker in (one, two):
            worker.wait_for("shard_live", 1)
        added = ["New@x.example", "@new.example"]
        removed = ["listed@x.example", "ok@listed.example", ".tree.example"]
        command(["lists", "add", "-c", config, *added, "--reason", "spam"])
        command(["lists", "remove", "-c", config, *removed])
        for worker in (one, two):
            worker.wait_for("list_changed")
        wait_until(
            lambda: all(w.events("list_changed")[-1]["position"] == 5 for w in (one, two)),
            DEADLINE_S,
            lambda: str(one.events("list_changed") + two.events("list_changed")),
        )
        for worker in (one, two):  # at the best: the commands' own start-up is not counted
            followed_s = [line["followed_s"] for line in worker.events("list_changed")]
            assert min(s for s in followed_s if s is not None) < FOLLOWED_S
        caught = ["new@x.example", "any@new.example", "other@listed.example"]
        free = ["listed@x.example", "ok@listed.example", "a@b.tree.example", "a@x.example"]
        screened.feed([(p, None, a.encode(), [], None) for a in caught + free for p in (0, 1)])
        screened.catch_up(one)
        assert {r.value for r in blocked(screened)} == {a.encode() for a in caught}
        assert {r.value for r in read_all(screened.bootstrap, screened.sink)} == {
            a.encode() for a in free
        }
        assert {header(r, "list-version").partition("+")[2] for r in blocked(screened)} == {"5"}
        for letter in blocked(screened):
            by_file = letter.value == b"other@listed.example"
            assert header(letter, "list-source") == ("file" if by_file else "change")
            assert by_file or header(letter, "list-reason") == "spam"
        command(["lists", "undo", "-c", config, *added, *removed])  # in each of three partitions
        wait_until(
            lambda: all(w.events("list_changed")[-1]["position"] == 5 + 15 for w in (one, two)),
            DEADLINE_S,
            lambda: str(one.events("list_changed") + two.events("list_changed")),
        )
        assert one.events("list_changed")[-1]["keys_changed"] == 0
