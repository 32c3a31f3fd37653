"""Documents of /api/status, one for each state that the page must show, with every name that a document has.

They are made up, so that each number on the page can be known. `test_page.py` compares their names with a real one.
"""

import math
from collections.abc import Iterable
from typing import Any

Values = dict[str, Any]

NOW = 1764489600.0  # 2025-11-30T08:00:00Z
DAY = 86_400.0
VERDICTS = ("pass", "duplicate", "blocked", "malformed", "rejected")
SHARES = (0.83, 0.164, 0.0055, 0.0005, 0.0)
PEERS = "peers"


def five(*counts: float) -> Values:
    """Counts by verdict."""
    return dict(zip(VERDICTS, counts, strict=True))


NOTHING = five(0, 0, 0, 0, 0)


def shard(partition: int, **others: Any) -> Values:
    """A partition that is well; `others` are what is not."""
    rate = 800 + (partition * 397) % 700
    keys = 1_500_000 + (partition * 1_234_567) % 5_000_000
    return {
        "partition": partition,
        "state": "live",
        "since": NOW - 3 * DAY,
        "trouble": None,
        "lag": (partition * 131) % 400,
        "oldest_unread_s": (partition * 13 % 7) / 10,
        "rate": float(rate),
        "verdicts": five(*(int(share * 70_000_000) for share in SHARES)),
        "per_second": five(*(round(share * rate, 1) for share in SHARES)),
        "minute": five(*(int(share * rate * 60) for share in SHARES)),
        "keys": keys,
        "capacity": 10_000_000,
        "error_rate": 1e-6 * (keys / 1e7) ** 3,
        "error_rate_allowed": 1e-6,
        "full_in_s": DAY * (12 + partition * 17 % 60),
        "filter_bytes": 38_000_000,
        "fold": None,
        "snapshot": {
            "age_s": 5.0 + partition * 53 % 280,
            "bytes": 38_000_000,
            "behind": 10_000 + partition,
        },
        **others,
    }


STILL = {"rate": 0.0, "per_second": NOTHING, "minute": NOTHING}


def minutes(begun: int = 60, scale: float = 1.0) -> Values:
    """The last `begun` minutes of 60."""
    shape = [
        scale * (1_100_000 + 250_000 * math.sin(at / 9) + 60_000 * math.sin(at * 2.3))
        for at in range(60)
    ]
    shape[59] *= 0.4
    return {
        "first": NOW - 59 * 60,
        **{
            verdict: [None if at < 60 - begun else int(share * shape[at]) for at in range(60)]
            for verdict, share in zip(VERDICTS, SHARES, strict=True)
        },
    }


def finding(  # noqa: PLR0917 - a row of a table
    id_: str, severity: str, place: str | None, sentence: str, remedy: str | None, ago_s: float
) -> Values:
    """One finding."""
    return {
        "id": id_,
        "severity": severity,
        "place": place,
        "sentence": sentence,
        "remedy": remedy,
        "since": NOW - ago_s,
    }


def not_passed(count: int) -> list[Values]:
    """The last events that did not pass."""
    reasons = (
        ("duplicate", "its key was emitted before", None, None),
        ("blocked", "it is on the block list", "disposable.list", "domain"),
        ("malformed", "the field user.email is missing", None, None),
    )
    return [
        {
            "topic": "events",
            "partition": at * 5 % 8,
            "offset": 88_000_000 - at * 31,
            "verdict": reasons[at % 3][0],
            "reason": reasons[at % 3][1],
            "event_time_ms": int((NOW - at * 3) * 1000),
            "list": reasons[at % 3][2],
            "list_version": None,
            "list_source": None,
            "rule": reasons[at % 3][3],
        }
        for at in range(count)
    ]


BLOCKLIST = {
    "list": "blocklist",
    "name": "disposable.list",
    "version": "2025-11-28T03:00:12Z",
    "keys": 100_000_000,
    "changes": 42,
    "refused": None,
}


def document(shards: Iterable[Values], worker: Values | None = None, /, **others: Any) -> Values:
    """The document of a worker that is ready, if nothing else is given."""
    shards = list(shards)
    return {
        "version": 1,
        "at": NOW,
        "worker": {
            "name": "dedup-0",
            "instance": "0" * 32,
            "version": "0.9.0",
            "python": "3.11.7",
            "up_since": NOW - 3 * DAY,
            "phase": "serving",
            "meaning": "5f2c90d1a3b4e871",
            "group": "dedup",
            "topic": "events",
            "output": "events-unique",
            "delivery": "exactly_once",
            "filter": "bloom",
            "window_s": None,
            "shadow": False,
            "judges": True,
            "address": "127.0.0.1:9464",
            "can_act": False,
            **(worker or {}),
        },
        "ready": {
            "is": True,
            "since": NOW - 3 * DAY + 20,
            "sentence": f"ready: {len(shards)} of events live",
        },
        "findings": [],
        "shards": shards,
        "totals": {
            "lag": sum(each["lag"] or 0 for each in shards),
            "rate": sum(each["rate"] for each in shards),
            "verdicts": total(each["verdicts"] for each in shards),
            "minute": total(each["minute"] for each in shards),
        },
        "minutes": minutes(),
        "stages": None,
        "lists": [],
        "not_passed": [],
        "others": [],
        PEERS: None,
        **others,
    }


def total(each: Iterable[Values]) -> Values:
    """The sums by verdict."""
    of_all = list(each)
    return {verdict: sum(counts[verdict] for counts in of_all) for verdict in VERDICTS}


def unready(sentence: str, ago_s: float) -> Values:
    """What `ready` is."""
    return {"is": False, "since": NOW - ago_s, "sentence": f"not ready: {sentence}"}


def healthy(partitions: int = 8) -> Values:
    """All is well."""
    return document(map(shard, range(partitions)), lists=[BLOCKLIST], not_passed=not_passed(6))


def empty() -> Values:
    """The group has more workers than partitions."""
    why = "no partition is assigned, because the group has more workers than partitions"
    others = [
        {"topic": "events", "partition": at, "owner": "dedup-1", "host": "/10.0.0.7", "lag": at}
        for at in range(2)
    ]
    ready = {"is": True, "since": NOW - 900, "sentence": f"ready: {why}"}
    return document([], ready=ready, minutes=minutes(15, 0), others=others)


CONNECTS = "connecting: finding the cluster, checking its topics, compiling code"


def connecting() -> Values:
    """Nothing is known of the group yet."""
    return document(
        [],
        {"phase": "connecting", "up_since": NOW - 3},
        ready=unready(CONNECTS, 3),
        findings=[finding("starting", "failure", None, CONNECTS, None, 3)],
        minutes=minutes(1, 0),
    )


def folding() -> Values:
    """Filters are built from the output."""
    shards = [
        shard(
            at,
            state="folding" if at else "fencing",
            since=NOW - 12,
            keys=100_000 * at,
            lag=100_000,
            oldest_unread_s=None,
            verdicts=NOTHING,
            full_in_s=None,
            snapshot=None,
            fold={
                "start": 0,
                "position": 250_000 * at,
                "end": 1_000_000,
                "ratio": at / 4,
                "seconds": 12.0,
                "left_s": (4 - at) * 12.0 / at,
            }
            if at
            else None,
            **STILL,
        )
        for at in range(4)
    ]
    found = [
        finding("partition-starts", "failure", f"events/{at}", f"folding, {at * 25}%", None, 12)
        for at in range(4)
    ]
    return document(
        shards,
        {"up_since": NOW - 20},
        ready=unready("4 partitions are not live", 20),
        findings=found,
        minutes=minutes(1, 0),
    )


def draining() -> Values:
    """The worker was asked to end."""
    return document(
        [shard(0), shard(1, lag=0)],
        {"phase": "draining"},
        ready=unready("draining", 2),
        findings=[finding("draining", "failure", None, "draining", None, 2)],
    )


def refused() -> Values:
    """The group does not take this worker."""
    why = "the group refuses this worker: the others have another configuration"
    remedy = "deploy one configuration to all workers, or give this one another kafka.group_id"
    return document(
        [],
        {"phase": "joining", "up_since": NOW - 75},
        ready=unready(f"{why}; {remedy}", 75),
        findings=[finding("group-of-another-configuration", "failure", None, why, remedy, 70)],
        minutes=minutes(2, 0),
    )


WRITER = (
    "events-unique/3 has a second writer: 12 events of producer 4711 at offsets 81,000 to 81,011"
)


def trouble() -> Values:
    """Partitions in each kind of trouble, warnings, stages, a list that is refused, and a token to act."""
    shards = [shard(at) for at in range(8)]
    shards[3] |= {"state": "stopped", "since": NOW - 1260, "trouble": WRITER, **STILL}
    shards[3] |= {"lag": 2_345_678, "oldest_unread_s": 1260.0}
    shards[5] |= {"state": "full", "keys": 10_000_000, "error_rate": 1e-6, **STILL}
    shards[5] |= {"lag": 301_200, "oldest_unread_s": 301.0, "full_in_s": 0.0}
    shards[6] |= {"keys": 9_810_000, "error_rate": 1.2e-6, "full_in_s": 5400.0}
    shards[7] |= {"snapshot": None}
    copying = {
        "topic": "raw",
        "middle": "events",
        "ready": True,
        "partitions": 8,
        "lag": 120,
        "copied": 123_456_789,
        "rate": 15_000.5,
        "paused": "the second stage is 5 GB behind",
        "held": 0,
        "stopped": 0,
        "left_out": 1,
        "unread": 4000,
    }
    full = "the filter has 10,000,000 keys, all that its capacity allows"
    refusal = "the checksum of part 3 is wrong"
    return document(
        shards,
        {"can_act": True},
        ready=unready("2 partitions are not live", 1260),
        findings=[
            finding(
                "filter-full", "failure", "events/5", f"full: {full}", "set filter.capacity", 300
            ),
            finding(
                "second-writer",
                "failure",
                "events/3",
                f"stopped: {WRITER}",
                "stop the writer",
                1260,
            ),
            finding(
                "clock-differs",
                "warning",
                "broker 1",
                "this clock is 7,200 s behind",
                "use NTP",
                DAY,
            ),
            finding(
                "repartition-held", "note", None, "2 partitions wait for slower ones", None, 60
            ),
        ],
        stages={
            "copying": copying,
            "judging": {"middle": "events", "partitions": 8, "lag": 2_700_000, "uncopied": 12},
        },
        lists=[
            BLOCKLIST | {"refused": refusal},
            BLOCKLIST | {"list": "allowlist", "name": "partners.list", "changes": None},
        ],
        not_passed=not_passed(3),
        others=[
            {"topic": "events", "partition": 8, "owner": "dedup-1", "host": "/10.0.0.7", "lag": 9},
            {"topic": "events", "partition": 9, "owner": None, "host": None, "lag": 982_000},
        ],
    )


def many() -> Values:
    """As many partitions as a worker may have."""
    return document([shard(at) for at in range(256)])


def with_peers() -> Values:
    """Two workers on one page, and a third one that is away."""
    mine, theirs = document([shard(0), shard(2)]), document([shard(1), shard(3)])
    theirs["worker"] |= {"name": "dedup-1", "instance": "1" * 32, "up_since": NOW - DAY}
    theirs["findings"] = [
        finding("clock-differs", "warning", "broker 1", "this clock is 9 s behind", "use NTP", 9)
    ]
    answers = {"address": "10.0.0.2:9464", "answers": True, "asked_at": NOW - 1, "since": None}
    away = {"address": "10.0.0.3:9464", "answers": False, "asked_at": NOW - 1, "since": NOW - 300}
    mine[PEERS] = [
        answers | {"error": None, "status": theirs},
        away | {"error": "the connection was refused", "status": None},
    ]
    return mine


def hostile(name: str) -> Values:
    """All that a stranger may choose is `name`."""
    made: Values = trouble()
    made["worker"] |= dict.fromkeys(("name", "group", "topic", "output", "meaning"), name)
    made["ready"]["sentence"] = name
    for each in (*made["findings"], *made["shards"], *made["lists"], *made["not_passed"]):
        for leaf in ("place", "sentence", "remedy", "trouble", "name", "version", "refused"):
            if leaf in each:
                each[leaf] = name
        for leaf in ("topic", "reason", "rule"):
            if leaf in each:
                each[leaf] = name
    for each in made["not_passed"]:
        each["list"] = name
    for each in made["others"]:
        each |= {"topic": name, "owner": name, "host": name}
    for leaf in ("topic", "middle", "paused"):
        made["stages"]["copying"][leaf] = name
    made["stages"]["judging"]["middle"] = name
    away = {"address": name, "answers": False, "asked_at": NOW, "since": NOW, "error": name}
    made[PEERS] = [away | {"status": None}]
    return made


STATES = {
    made.__name__: made
    for made in (
        empty, connecting, folding, draining, refused, trouble, many, healthy, with_peers,
    )
}  # fmt: skip
