"""A group of options in a section: `source.repartition`, which is set as a whole, or not at all."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from streamdedup.settings import reference_markdown, show
from tests.rows import every
from tests.settings.minimal import MINIMAL, problems, read

GROUP = MINIMAL.replace(
    "  topic: events\n",
    "  topic: events\n  repartition:\n    topic: by-key\n    partitions: 12\n",
)
TOPIC = "source.repartition.topic=by-key"
PARTITIONS = "source.repartition.partitions=12"
LEAVES = {"SOURCE__REPARTITION__TOPIC": "by-key", "SOURCE__REPARTITION__PARTITIONS": "12"}
IN_ONE_LINE = MINIMAL.replace(
    "  topic: events\n",
    "  topic: events\n  repartition: {topic: by-key, partitions: 12, unread_max: 5k}\n",
)
Written = tuple[str, Sequence[str], Mapping[str, str], tuple[str, int, int] | None]
WRITTEN: list[Written] = [
    (MINIMAL, [], {}, None),
    (GROUP, [], {}, ("by-key", 12, 1_000_000)),
    (IN_ONE_LINE, [], {}, ("by-key", 12, 5000)),
    (MINIMAL, [], LEAVES, ("by-key", 12, 1_000_000)),
    (
        MINIMAL,
        [],
        {"SOURCE__REPARTITION": "{topic: by-key, partitions: 12, unread_max: 7}"},
        ("by-key", 12, 7),
    ),
    (MINIMAL, [TOPIC, PARTITIONS], {}, ("by-key", 12, 1_000_000)),
    (MINIMAL, ["source.repartition={topic: a, partitions: 3}"], {}, ("a", 3, 1_000_000)),
    (
        GROUP,
        ["source.repartition={topic: a}"],
        {"SOURCE__REPARTITION__PARTITIONS": "24", "SOURCE__REPARTITION__UNREAD_MAX": "9"},
        ("a", 24, 9),
    ),
    (GROUP, ["source.repartition=null"], {}, None),
    (GROUP, [], {"SOURCE__REPARTITION": ""}, None),
    (GROUP, ["source.repartition.topic=null", "source.repartition.partitions=null"], {}, None),
    (GROUP, [TOPIC, PARTITIONS, "source.repartition=null"], {}, None),
    (IN_ONE_LINE, [TOPIC, PARTITIONS], {"SOURCE__REPARTITION": ""}, ("by-key", 12, 1_000_000)),
    *(
        (MINIMAL, [TOPIC, PARTITIONS, f"source.repartition.{override}"], {}, expected)
        for override, expected in [
            ("partitions=1", ("by-key", 1, 1_000_000)),
            ("partitions=10k", ("by-key", 10_000, 1_000_000)),
            ("unread_max=1", ("by-key", 12, 1)),
            ("unread_max=1G", ("by-key", 12, 10**9)),
            ("topic=0123", ("0123", 12, 1_000_000)),
        ]
    ),
]


class TestSources:
    """Its options come from where all options come from, each from the highest source that sets it."""

    def test_each_source_sets_it_leaf_by_leaf_or_as_a_whole(self, file: Path) -> None:
        """A mapping sets only the leaves that it has, and a null takes back all that came before it."""

        def check(row: Written) -> None:
            text, overrides, environ, expected = row
            file.write_text(text)
            made = read(file, *overrides, **environ).source.repartition
            assert (made and (made.topic, made.partitions, made.unread_max)) == expected

        every(WRITTEN, check)

    def test_half_a_group_after_a_null_is_missed_at_the_place_of_the_null(self, file: Path) -> None:
        """The group is then made of that half alone."""
        file.write_text(GROUP)
        (line,) = problems(file, TOPIC, SOURCE__REPARTITION="")
        assert line.startswith("STREAMDEDUP_SOURCE__REPARTITION: source.repartition.partitions: is")

    def test_each_leaf_has_its_origin(self, file: Path) -> None:
        """It is shown beside the value, and what is shown can be read again."""
        file.write_text(GROUP)
        settings = read(file, "source.repartition.unread_max=2M", SOURCE__REPARTITION__TOPIC="a")
        assert (
            "  repartition:\n"
            "    topic: a  # STREAMDEDUP_SOURCE__REPARTITION__TOPIC\n"
            f"    partitions: 12  # {file}:8\n"
            "    unread_max: 2000000  # --set\n"
        ) in show(settings)
        file.write_text(show(settings))
        assert read(file).model_dump() == settings.model_dump()
        assert "  repartition: null  # default\n" in show(read(file, "source.repartition=null"))


class TestRefusals:
    """A problem names the leaf, its place and the remedy."""

    @pytest.mark.parametrize(
        ("override", "expected"),
        [
            ("topic='a b'", ".topic: must be 1 to 249 of the characters"),
            ("topic=[a]", ".topic = a list: must be a text"),
            ("partitions=0", ".partitions = '0': out of range, must be 1 to 10k partitions"),
            ("partitions=10001", ".partitions = '10001': out of range, must be 1 to 10k"),
            ("partitions=many", ".partitions: is not an integer; write one like 100_000 or 100M"),
            ("unread_max=0", ".unread_max = '0': out of range, must be 1 to 1G events"),
            ("unread_max=1000000001", ".unread_max = '1000000001': out of range, must be 1 to 1G"),
        ],
    )
    def test_a_wrong_value_is_refused(self, file: Path, override: str, expected: str) -> None:
        """It is one problem, although the leaf is required."""
        (line,) = problems(file, TOPIC, PARTITIONS, f"source.repartition.{override}")
        assert line.startswith(f"--set: source.repartition{expected}")

    def test_a_place_in_the_file_is_a_line(self, file: Path) -> None:
        """That of the leaf, not of its group."""
        file.write_text(GROUP.replace("12", "0"))
        (line,) = problems(file)
        assert line.startswith("dedup.yaml:8: source.repartition.partitions = '0': out of range")

    def test_half_a_group_names_the_other_half(self, file: Path) -> None:
        """The remedy is whole: where to set it, by which name, with an example."""
        assert problems(file, TOPIC) == [
            "dedup.yaml: source.repartition.partitions: is required with the other options of source.repartition"
            " (the number of partitions of the middle topic); set it in the file, as"
            " STREAMDEDUP_SOURCE__REPARTITION__PARTITIONS, or with --set source.repartition.partitions=12"
        ]
        (line,) = problems(file, PARTITIONS)
        assert line.startswith("dedup.yaml: source.repartition.topic: is required with the other")
        lines = problems(file, "source.repartition.unread_max=5")
        assert [line.split(": ")[1] for line in lines] == [
            "source.repartition.partitions",
            "source.repartition.topic",
        ]

    @pytest.mark.parametrize(
        ("written", "expected"),
        [
            ("{}", "has no options; set some, or delete it"),
            ("by-key", "must be a mapping of options to values"),
            ("[by-key, 12]", "must be a mapping of options to values"),
            ("12", "must be a mapping of options to values"),
        ],
    )
    def test_a_group_is_a_mapping_of_options(self, file: Path, written: str, expected: str) -> None:
        """An empty one would be no group, which is not what was written."""
        override = f"source.repartition={written}"
        assert problems(file, override) == [f"--set: source.repartition: {expected}"]

    def test_a_name_that_resembles_no_leaf_of_the_group_is_hidden(self, file: Path) -> None:
        """The group's own name is no reason to repeat what follows it, which may be a secret."""
        (line,) = problems(file, "source.repartition.hunter2=x")
        assert line.startswith("--set: source.repartition.********: is not an option; see ")

    def test_a_misspelt_leaf_is_not_also_called_missing(self, file: Path) -> None:
        """One fault is one line, and does not hide a contradiction of other leaves."""
        file.write_text(GROUP.replace("partitions:", "partition:"))
        assert problems(file, "sink.topic=events") == [
            "dedup.yaml:8: source.repartition.partition: is not an option; did you mean"
            " source.repartition.partitions?",
            "--set: sink.topic: must differ from source.topic; name another topic",
        ]

    def test_a_wrong_leaf_does_not_hide_what_contradicts_the_others(self, file: Path) -> None:
        """Nor does one that is missing."""
        lines = problems(file, TOPIC, "source.repartition.partitions=0", "sink.topic=by-key")
        assert "--set: source.repartition.topic: must differ from sink.topic" in lines[1]
        lines = problems(file, TOPIC, "sink.topic=by-key")
        assert "--set: source.repartition.topic: must differ from sink.topic" in lines[0]

    @pytest.mark.parametrize(
        "text",
        ["source.repartition.topic: by-key\n", "source:\n  repartition.topic: by-key\n"],
    )
    def test_a_dotted_name_in_a_file_is_to_be_indented(self, file: Path, text: str) -> None:
        """At the top, and in its section."""
        without = MINIMAL.replace("source:\n  topic: events\n", "")
        file.write_text(text + without)
        lines = problems(file, "source.topic=events")
        assert [line.split(": ", 1)[1] for line in lines] == [
            "source.repartition.topic: must be written as a section: `source:`, indented below it `repartition:`,"
            " indented below it `topic:`"
        ]


def test_the_reference_has_the_group_and_its_leaves() -> None:
    """In the table of its section, the group first; what is required is so only if the group is set."""
    rows = [row for row in reference_markdown().splitlines() if row.startswith("| `repartition")]
    assert [row.split(" | ")[:3] for row in rows] == [
        ["| `repartition`", "not set", "a group of options, which follow"],
        ["| `repartition.topic`", "required with `repartition`", "a text"],
        ["| `repartition.partitions`", "required with `repartition`", "1 to 10k partitions"],
        ["| `repartition.unread_max`", "`1M`", "1 to 1G events"],
        ["| `repartition.max_skew`", "not set", "1ms to 36600d"],
    ]
