"""Shadow mode on a real broker: everything passes and says how it was judged; what a fold makes of such an output."""

import random
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from proof.broker.test_audit import audited, findings
from proof.broker.test_lists import build_lists, is_blocked
from streamdedup.errors import ConfigError
from streamdedup.events import Verdict
from streamdedup.kafka.options import MARK
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.settings import load
from tests.broker.base import Broker
from tests.broker.needs import AHEAD
from tests.broker.topics import Event, Record, alter_topic, read_all
from tests.deployment import Deployment
from tests.local import Start, run_to_the_end, single

pytestmark = pytest.mark.broker

PATHS = ["columns", "objects"]


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """One partition in shadow mode, both lists, a topic for each sort of event."""
    made = single(broker, tmp_path).create()
    made.config["key"] = {"from": "key", "normalize": "email"}
    made.config |= build_lists(tmp_path)
    made.config["sink"]["shadow"] = True
    for leaf in ("duplicates_topic", "blocked_topic", "dead_letter_topic"):
        made.create_side_topic(leaf)
    return made


def addressed(numbers: Iterable[int], *headers: tuple[str, bytes | None]) -> list[Event]:
    """Events by their record keys; every third is of a domain that is blocked."""
    return [
        (
            0,
            b"user%d@%s" % (n, b"junk.org" if n % 3 == 0 else b"example.com"),
            b"%d" % n,
            [*headers],
            None,
        )
        for n in numbers
    ]


def output_of(deployment: Deployment) -> list[Record]:
    """All of it, in its order."""
    return read_all(deployment.bootstrap, deployment.sink)


def judged(records: Iterable[Record]) -> list[tuple[bytes | None, bytes | None]]:
    """Return value and verdict of each."""
    return [(record.value, dict(record.headers).get(MARK)) for record in records]


def forget(deployment: Deployment) -> None:
    """Delete the snapshots: the next worker folds all of the output."""
    shutil.rmtree(deployment.directory / "snapshots", ignore_errors=True)


@pytest.mark.parametrize("path", PATHS)
def test_everything_passes_with_its_verdict(deployment: Deployment, path: str) -> None:
    """Each event is in the output as it came, and behind its own headers stands ours; the other topics get nothing."""
    deployment.config["kafka"]["record_path"] = path
    deployment.config["source"]["tombstones"] = "drop"
    own = ("own", b"1")
    deployment.feed(addressed([1, 2, 1, 5, 3, 15], own))
    deployment.feed(
        [(0, b"no address", b"m", [own], None), (0, b"user7@example.com", None, [], None)]
    )
    worker = run_to_the_end(deployment)
    source, output = read_all(deployment.bootstrap, deployment.source), output_of(deployment)
    for event, copy in zip(source, output, strict=True):
        assert (copy.key, copy.value, copy.timestamp_ms) == (
            event.key,
            event.value,
            event.timestamp_ms,
        )
        assert copy.headers[: len(event.headers)] == event.headers
    verdicts = [
        *(b"pass", b"pass", b"duplicate", b"blocked", b"blocked", b"pass"),
        *(b"malformed", b"blocked"),
    ]
    assert [verdict for _, verdict in judged(output)] == verdicts
    rules = [dict(record.headers).get("streamdedup.rule") for record in output]
    assert rules == [None, None, None, b"address", b"domain", None, None, None]
    assert dict(output[3].headers)["streamdedup.list"] == b"blocked"
    for leaf in ("duplicates_topic", "blocked_topic", "dead_letter_topic"):
        assert not read_all(deployment.bootstrap, deployment.config["sink"][leaf])
    assert worker.tally.consumed == len(source)
    assert worker.lines("shadow_mode")


@pytest.mark.parametrize("path", PATHS)
def test_a_fold_leaves_out_what_did_not_pass(deployment: Deployment, path: str) -> None:
    """Shadow mode is left, without a snapshot. Keys that passed are known; blocked keys pass once the list is gone."""
    deployment.config["kafka"]["record_path"] = path
    deployment.feed(addressed([1, 1, 5, 5, 3, 2]))
    run_to_the_end(deployment)
    forget(deployment)
    del deployment.config["blocklist"], deployment.config["allowlist"]
    for leaf in ("shadow", "blocked_topic"):
        del deployment.config["sink"][leaf]
    before = len(output_of(deployment))
    deployment.feed(addressed([1, 2, 5, 5, 3, 4]))
    worker = run_to_the_end(deployment)
    assert judged(output_of(deployment)[before:]) == [(b"5", None), (b"3", None), (b"4", None)]
    [folded] = worker.lines("output_folded")
    assert (folded["events"], folded["not_passed"], folded["without_key"]) == (6, 4, 0)


@pytest.mark.parametrize("path", PATHS)
def test_nobody_keeps_a_key_out_of_the_filter_by_a_header(
    deployment: Deployment, path: str
) -> None:
    """An event that comes with a mark of its own passes once, before and after a fold: ours stands behind it."""
    deployment.config["kafka"]["record_path"] = path
    del deployment.config["sink"]["shadow"]
    deployment.feed(addressed([1, 2], (MARK, b"duplicate"), ("own", b"1")))
    deployment.feed(addressed([4]))
    run_to_the_end(deployment)
    assert [record.headers for record in output_of(deployment)] == [
        *[((MARK, b"duplicate"), ("own", b"1"), (MARK, b"pass"))] * 2,
        (),
    ]
    forget(deployment)
    deployment.feed(addressed([1, 2, 4]))
    run_to_the_end(deployment)
    assert len(output_of(deployment)) == 3


def test_kills_in_shadow_mode_lose_nothing_and_double_no_pass(deployment: Deployment) -> None:
    """Every input event is in the output once; each key passed once, whatever is killed and forgotten between."""
    chance = random.Random(3)
    deployment.expect_kills()
    deployment.config["delivery"] |= {"batch_events_max": 200, "commit_interval_ms": 10}
    numbers = [chance.randrange(3_000) for _ in range(20_000)]
    deployment.feed(addressed(numbers))
    for attempt in range(3):
        with deployment.running(f"{attempt}.log") as worker:
            worker.wait_for("shard_live", 1)
            time.sleep(chance.uniform(0, 0.3))  # the moment of the crash, not a wait for anything
            worker.kill()
        if attempt == 1:
            forget(deployment)
    run_to_the_end(deployment)
    output = judged(output_of(deployment))
    assert [value for value, _ in output] == [b"%d" % number for number in numbers]
    passed = Counter(value for value, verdict in output if verdict == b"pass")
    assert passed == Counter(b"%d" % n for n in dict.fromkeys(numbers) if is_blocked(n) is None)


async def test_the_page_says_that_nothing_is_dropped(deployment: Deployment, start: Start) -> None:
    """And the verdicts are counted as ever."""
    deployment.feed(addressed([1, 1, 5]))
    worker = await start(deployment).through(3)
    page = pages(worker.worker.status, Pulse())["/metrics"]().text
    samples = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    assert float(samples["streamdedup_shadow"]) == 1
    counts = {v: t for v, t in samples.items() if v.startswith("streamdedup_events_total")}
    assert sum(float(count) for count in counts.values()) == 3


def test_an_event_that_fits_only_without_its_mark_is_a_dead_letter(deployment: Deployment) -> None:
    """It is decided beforehand: no transaction fails by what we append."""
    alter_topic(deployment.bootstrap, deployment.sink, max_message_bytes=10_000)
    value = random.Random(1).randbytes(9_500)  # which lz4 does not make smaller
    deployment.feed([(0, b"user1@example.com", value, [], None), *addressed([2])])
    run_to_the_end(deployment)
    assert judged(output_of(deployment)) == [(b"2", b"pass")]
    letters = read_all(deployment.bootstrap, deployment.config["sink"]["dead_letter_topic"])
    assert [dict(letter.headers)["streamdedup.reason"] for letter in letters] == [b"too large"]


@pytest.mark.needs_broker(AHEAD)
def test_a_tombstone_that_the_output_refuses_is_a_dead_letter(deployment: Deployment) -> None:
    """If tombstones are dropped, it goes nowhere; but in shadow mode it would have to go to the output."""
    deployment.config["source"]["tombstones"] = "drop"
    alter_topic(deployment.bootstrap, deployment.source, message_timestamp_after_max_ms=1 << 40)
    alter_topic(deployment.bootstrap, deployment.sink, message_timestamp_after_max_ms=3_600_000)
    ahead_ms = int(time.time() * 1000) + 7_200_000
    deployment.feed([(0, b"user1@example.com", None, [], ahead_ms), *addressed([2])])
    worker = run_to_the_end(deployment)
    assert judged(output_of(deployment)) == [(b"2", b"pass")]
    assert worker.tally[Verdict.REJECTED] == 1
    deployment.config["sink"]["shadow"] = False
    deployment.feed([(0, b"user1@example.com", None, [], ahead_ms)])
    assert run_to_the_end(deployment).tally[Verdict.BLOCKED] == 1


@pytest.mark.parametrize("on_malformed", ["dead_letter", "drop", "pass"])
@pytest.mark.parametrize("shadow_first", [True, False])
def test_an_audit_knows_marks(
    deployment: Deployment, on_malformed: str, shadow_first: bool
) -> None:
    """What is in the output and did not pass is neither doubled nor lost; whenever shadow mode is set and unset."""
    deployment.config["key"]["on_malformed"] = on_malformed
    deployment.config["source"]["tombstones"] = "drop"
    for shadow in (shadow_first, not shadow_first):
        deployment.config["sink"]["shadow"] = shadow
        deployment.feed(addressed([1, 2, 1, 5, 5, 3, 15]))
        deployment.feed(
            [(0, b"no address", b"m", [], None), (0, b"user7@example.com", None, [], None)]
        )
        run_to_the_end(deployment)
        report = audited(deployment)
        assert not report.breaches
        assert not any(findings(report).values()), findings(report)
    assert report.total.blocked == 6


def test_an_audit_without_a_filter_knows_marks(deployment: Deployment) -> None:
    """Each event is there once, and those are counted that a list blocked."""
    deployment.config["filter"] = {"kind": "none"}
    for name in ("duplicates_topic", "blocked_topic"):
        del deployment.config["sink"][name]
    deployment.feed(addressed([1, 1, 5, 3]))
    run_to_the_end(deployment)
    report = audited(deployment)
    assert not report.breaches
    assert (report.total.emitted, report.total.blocked) == (4, 2)


def test_a_compacted_output_is_refused_in_shadow_too(deployment: Deployment) -> None:
    """Also without a filter: what is blocked would take the place of what is not."""
    deployment.config["filter"] = {"kind": "none"}
    del deployment.config["sink"]["duplicates_topic"]
    alter_topic(deployment.bootstrap, deployment.sink, cleanup_policy="compact")
    with pytest.raises(ConfigError, match=r"compacted .* sink\.shadow=false"):
        run_to_the_end(deployment)


@pytest.mark.parametrize("name", [MARK, "streamdedup.list", "streamdedup.rule"])
def test_what_we_write_is_no_key(deployment: Deployment, name: str) -> None:
    """Else a fold would judge by our own header."""
    deployment.config["key"] = {"from": "header", "field": name}
    with pytest.raises(ConfigError, match="streamdedup writes that header itself"):
        load(deployment.write_config())
