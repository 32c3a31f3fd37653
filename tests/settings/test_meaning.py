"""Claims about the meaning: what it consists of, what workers of one group may differ in, and its name."""

import json
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

from streamdedup.keys.options import URL_SWITCHES
from streamdedup.settings import Settings, load, meaning, stages
from streamdedup.settings.meaning import Meaning, shown_check
from tests.rows import every

CONFIG = """\
kafka: {bootstrap_servers: localhost:9092, group_id: dedup}
source: {topic: events}
key: {field: id}
filter: {capacity: 4000, error_rate: 1e-3}
sink: {topic: unique}
snapshot: {directory: var/snapshots}
"""
SIPHASH = "filter.hash=siphash"


def loaded(tmp_path: Path, *overrides: str) -> Settings:
    """The configuration with these settings; FILE in one stands for a file that exists."""
    path = tmp_path / "dedup.yaml"
    path.write_text(CONFIG)
    given = [override.replace("FILE", str(path)) for override in overrides]
    environ = {"STREAMDEDUP_FILTER__HASH_KEY": "00" * 16} if SIPHASH in given else {}
    return load(path, given, environ)


def meant(tmp_path: Path, *overrides: str) -> Meaning:
    """The meaning of that configuration."""
    return Meaning.of(loaded(tmp_path, *overrides))


def test_the_parts_of_a_meaning(tmp_path: Path) -> None:
    """Version, topics, key, normalizer, and whether there is a filter; names and checks are those of today."""
    seen = meant(tmp_path)
    assert seen.parts == {
        "version": 1,
        "source": "events",
        "sink": "unique",
        "key": {"from": "json", "fields": ["id"], "tombstones": "pass"},
        "normalize": "none",
        "filter": True,
    }
    assert seen.name == "streamdedup-b140e3ffcfa8d302"
    assert seen.name.startswith(f"streamdedup-{shown_check(seen.check)}")
    assert meant(tmp_path, "key.normalize=lowercase").parts["normalize"] == "lowercase 1"


PARTED = "key.field=null"
SAME = [
    *(
        ([f"key.field={pointer}"], [f"key.field={dotted}"])
        for pointer, dotted in {
            "/id": "id",
            "/a/b": "a.b",
            "[/id, /a/b]": "[id, a.b]",
            "[/a~1b]": "['a/b']",
        }.items()
    ),
    ([PARTED, "key.parts=[{field: id}]"], ["key.field=id"]),
    ([PARTED, "key.parts=[{field: /a/b}, {field: [c]}]"], ["key.field=[a.b, c]"]),
    ([PARTED, "key.parts=[{header: h}]"], ["key.from=header", "key.field=h"]),
    (
        [PARTED, "key.parts=[{header: h}, {field: [/a/b, c]}]"],
        [PARTED, "key.parts=[{header: [h]}, {field: [a.b, c]}]"],
    ),
]


def test_two_ways_to_write_one_key_are_one_meaning(tmp_path: Path) -> None:
    """Workers of one group may write either: a pointer or a path, parts or a field."""

    def check(row: tuple[Sequence[str], Sequence[str]]) -> None:
        one, other = (meant(tmp_path, *overrides) for overrides in row)
        assert (one.parts, one.identity_key) == (other.parts, other.identity_key)

    every(SAME, check)


def test_a_pointer_that_has_no_path_stays(tmp_path: Path) -> None:
    """A name with a dot in it, or an empty one, is no path; nor is one that would be read as a pointer."""
    for pointer in ("/a.b", "/", "/a//b", "/~1a"):
        assert meant(tmp_path, f"key.field={pointer}").parts["key"]["fields"] == [pointer]
    assert meant(tmp_path, "key.from=header", "key.field=/id").parts["key"]["fields"] == ["/id"]


PARTS = [
    "[{header: tenant}, {field: [after.id, before.id]}]",
    "[{header: tenant}, {field: [before.id, after.id]}]",
    "[{field: [after.id, before.id]}, {header: tenant}]",
    "[{header: tenant}, {field: after.id}, {field: before.id}]",
    "[{field: tenant}, {field: [after.id, before.id]}]",
    "[{header: [tenant, after.id]}, {field: before.id}]",
    "[{field: [after.id, before.id]}]",
    "[{header: [after.id, before.id]}]",
]


def test_each_way_to_make_a_key_of_parts_is_a_meaning_and_an_identity(tmp_path: Path) -> None:
    """Order, kind and fallback of the parts count: each changes which key an event has."""
    made = [meant(tmp_path, "key.field=null", f"key.parts={parts}") for parts in PARTS]
    made += [meant(tmp_path), meant(tmp_path, "key.field=[after.id, before.id]")]
    assert len({each.name for each in made}) == len(made)
    assert len({json.dumps(each.identity_key) for each in made}) == len(made)
    assert made[0].identity_key == {
        "from": "parts",
        "fields": [],
        "parts": [{"header": ["tenant"]}, {"json": ["after.id", "before.id"]}],
        "tombstones": "pass",
    }


URL = "key.normalize=url"
EMAIL = "key.normalize=email"
DIFFERENT = [
    [],
    ["source.topic=other"],
    ["source.tombstones=judge"],
    ["sink.topic=other"],
    ["key.field=user"],
    ['key.field=["id", "user"]'],
    ["key.from=header"],
    ["key.from=key", "key.field=null"],
    ["key.from=value", "key.field=null"],
    ["key.normalize=trim"],
    ["key.normalize=lowercase"],
    [EMAIL],
    *([EMAIL, f"key.email_{rule}"] for rule in ("preset=strict", "dots=false", "tags=false")),
    [URL],
    *([URL, f"key.url_{name}=true"] for name in URL_SWITCHES),
    *([URL, f"key.url_ignore=[{names}]"] for names in ("a", "a, b")),
    ["source.repartition={topic: middle, partitions: 12}"],
]


def test_what_decides_keys_and_outputs_changes_the_name(tmp_path: Path) -> None:
    """Workers that differ in one of these may not share a group: each has a name and a check of its own."""
    made = [meant(tmp_path, *overrides) for overrides in DIFFERENT]
    assert len({each.name for each in made}) == len(DIFFERENT)
    assert len({each.check for each in made}) == len(DIFFERENT)


def test_the_order_of_ignored_parameters_is_no_meaning(tmp_path: Path) -> None:
    """Nor are their case and how often they are named."""
    same = [meant(tmp_path, URL, f"key.url_ignore=[{names}]").name for names in ("a, b", "B, a, a")]
    assert len(set(same)) == 1


def test_the_format_changes_the_name_and_no_identity(tmp_path: Path) -> None:
    """Keys do not depend on it, so a memory stays of use; but a worker that cannot read an event must not share it."""
    registry = "kafka.schema_registry.url=http://registry"
    formats = {"avro": (registry,), "protobuf": (registry,), "json_schema": ()}
    plain = meant(tmp_path)
    found = {each: meant(tmp_path, f"key.format={each}", *of) for each, of in formats.items()}
    assert {each: seen.parts["format"] for each, seen in found.items()} == {e: e for e in formats}
    assert len({plain.name, *(each.name for each in found.values())}) == 4
    for each in found.values():
        assert each.identity_key == plain.identity_key
        assert plain.check in each.kin
        assert each.check in plain.kin
        assert each.check not in each.kin
    assert meant(tmp_path, "key.field=other").check not in plain.kin


def test_the_frame_changes_the_name_and_no_identity(tmp_path: Path) -> None:
    """Likewise: where the id of a schema is decides whether a value can be read, and not its key."""
    avro = ("key.format=avro", "kafka.schema_registry.url=http://registry")
    plain, framed = meant(tmp_path, *avro), meant(tmp_path, *avro, "key.framing=header")
    assert framed.parts == {**plain.parts, "framing": "header"}
    assert framed.name != plain.name
    assert framed.identity_key == plain.identity_key
    assert framed.check in plain.kin


def test_a_worker_without_a_filter_has_another_name(tmp_path: Path) -> None:
    """It emits what is known to one with a filter."""
    without = meant(tmp_path, "filter=null", "snapshot=null", "blocklist.file=FILE")
    assert without.parts == {**meant(tmp_path).parts, "filter": False}
    assert without.name != meant(tmp_path).name


def test_another_version_of_the_extraction_has_another_name_and_identity(tmp_path: Path) -> None:
    """A release that takes another key from an event shares no group with the one before, and folds the output."""
    before = meant(tmp_path)
    names, keys = {before.name}, before.identity_key
    with patch.object(meaning, "VERSION", 2):
        names.add(meant(tmp_path).name)
        assert meant(tmp_path).identity_key == {**keys, "version": 2}
    assert len(names) == 2
    assert "version" not in keys


def stages_of(tmp_path: Path, *overrides: str) -> list[Meaning]:
    """The meanings of the two stages, with `source.repartition` of 12 partitions."""
    settings = loaded(tmp_path, "source.repartition={topic: middle, partitions: 12}", *overrides)
    return [Meaning.of(stages.copying(settings)), Meaning.of(stages.deduplicating(settings))]


def test_the_meanings_of_the_two_stages(tmp_path: Path) -> None:
    """Both read the middle, in whichever inputs the events are, and have the number of its partitions."""
    first, second = stages_of(tmp_path)
    plain = meant(tmp_path).parts
    assert first.parts == {
        **plain,
        "source": "middle",
        "sink": "middle",
        "filter": False,
        "placement": 12,
    }
    assert second.parts == {**plain, "source": "middle", "placement": 12}


@pytest.mark.parametrize(
    "override",
    [
        "source={topic: other}",
        "source={topic: null, topics: [events, more]}",
        "source.repartition.unread_max=5",
    ],
)
@pytest.mark.rule(30)
def test_inputs_are_no_meaning_of_a_stage(tmp_path: Path, override: str) -> None:
    """Keys are placed by the middle alone: inputs may come and go, and the unread grow, without a new group."""
    for ours, theirs in zip(stages_of(tmp_path), stages_of(tmp_path, override), strict=True):
        assert theirs.name == ours.name
        assert theirs.check == ours.check
        assert theirs.identity_key == ours.identity_key


@pytest.mark.parametrize(
    "override", ["source.repartition.topic=other", "source.repartition.partitions=13"]
)
@pytest.mark.rule(20)
def test_another_placement_is_another_meaning_of_both_stages(tmp_path: Path, override: str) -> None:
    """Names, checks and identities of both differ."""
    for ours, theirs in zip(stages_of(tmp_path), stages_of(tmp_path, override), strict=True):
        assert theirs.name != ours.name
        assert theirs.check != ours.check
        assert theirs.identity_key != ours.identity_key


def test_the_identity_has_the_placement_beside_the_key(tmp_path: Path) -> None:
    """Its own topic is the output, so it names the middle topic here; without one, it is what it always was."""
    key = meant(tmp_path).identity_key
    assert key == {"from": "json", "fields": ["id"], "tombstones": "pass"}
    placement = {"topic": "middle", "partitions": 12}
    assert [stage.identity_key for stage in stages_of(tmp_path)] == [
        {**key, "placement": placement}
    ] * 2


MIXED = [
    "filter.capacity=9000",
    "filter.error_rate=1e-5",
    "filter.kind=cuckoo",
    SIPHASH,
    "filter.on_full=stop",
    "filter.max_size=1GB",
    "filter.partition_headroom=2",
    "blocklist.file=FILE",
    "blocklist.file=FILE allowlist.file=FILE",
    "sink.shadow=true",
    "sink.duplicates_topic=again",
    "sink.dead_letter_topic=dead",
    "sink.compression=zstd",
    "sink.on_gap=accept",
    "source.on_growth=accept",
    "source.start=latest",
    "key.on_malformed=drop",
    "delivery.guarantee=at_least_once",
    "snapshot.keep=9",
    "server.port=9000",
    "kafka.group_id=other",
    "kafka.client_id=other",
]


def test_all_else_may_be_mixed_and_rolled_out(tmp_path: Path) -> None:
    """Workers of one group may differ in it: the name is the same."""

    def check(override: str) -> None:
        assert meant(tmp_path, *override.split()).name == meant(tmp_path).name

    every(MIXED, check)


@pytest.mark.parametrize("normalize", ["trim", "lowercase", "email", "url"])
def test_pythons_tables_stay_in_the_identity(
    tmp_path: Path, normalize: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollout from one Python to the next is one of a group; each shard folds the output by its own tables."""
    ours = meant(tmp_path, f"key.normalize={normalize}")
    name, identity = ours.name, ours.identity_normalize
    for module in ("normalizers", "normalizers.email"):
        monkeypatch.setattr(f"streamdedup.keys.{module}.characters_check", lambda **_: 7)
    monkeypatch.setattr("unicodedata.unidata_version", "7")
    theirs = meant(tmp_path, f"key.normalize={normalize}")
    assert theirs.name == name
    assert theirs.identity_normalize != identity
