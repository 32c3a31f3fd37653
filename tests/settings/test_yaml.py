"""What a value in YAML means, and which YAML is refused."""

from pathlib import Path

import pytest

from tests.rows import every
from tests.settings.minimal import MINIMAL, problems, read, refusal

REQUIRED = {"filter.capacity": "  capacity: 1000\n", "source.topic": "  topic: events\n"}
RATES = {"1e-6": 1e-6, "1.0e-6": 1e-6, ".5": 0.5, "'0.25'": 0.25, "0.001": 0.001}
NULLS = ["~", "null", "Null", "NULL"]
SCALARS: list[tuple[str, str, object]] = [
    *(("filter.error_rate", written, value) for written, value in RATES.items()),
    *(("filter.capacity", written, 100_000) for written in ("100_000", "100k", "1e5", "'100000'")),
    *(
        ("source.topic", name, name)
        for name in ("0123", "on", "1_0", "2026-01-01", "1.50", "true", "0x1F")
    ),
    *(("sink.create_topics", written, True) for written in ("yes", "on")),
    *(("sink.create_topics", written, False) for written in ("no", "false")),
    # Each way to write null is the default; in quotes it is a text.
    *(("kafka.client_id", written, "streamdedup") for written in ("", *NULLS)),
    *(("kafka.client_id", f"'{written}'", written) for written in ("x", *NULLS)),
]


class TestYaml:
    """A scalar means what it looks like."""

    def test_a_scalar_means_what_it_looks_like(self, file: Path) -> None:
        """In a file and on the command line, though YAML 1.1 takes 1e-6 for a text, and 0123 for a number."""

        def check(row: tuple[str, str, object]) -> None:
            leaf, written, value = row
            section, name = leaf.split(".")
            text = MINIMAL.replace(REQUIRED[leaf], "") if leaf in REQUIRED else MINIMAL
            file.write_text(text.replace(f"{section}:\n", f"{section}:\n  {name}: {written}\n"))
            assert getattr(getattr(read(file), section), name) == value
            file.write_text(MINIMAL)
            assert getattr(getattr(read(file, f"{leaf}={written}"), section), name) == value

        every(SCALARS, check)

    def test_an_editors_marks_are_no_content(self, file: Path) -> None:
        """Editors of Windows begin a file with a byte order mark, and end lines by two characters."""
        plain = read(file)
        file.write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
        assert read(file) == plain

    def test_a_name_that_is_no_text_is_refused(self, file: Path) -> None:
        """By its line."""
        file.write_text(MINIMAL.replace("source:", "source:\n  [a]: b"))
        assert problems(file) == ["dedup.yaml:5: a name must be a text"]

    def test_sexagesimals_are_refused(self, file: Path) -> None:
        """1:30 is 90 to YAML 1.1 and nothing certain to a reader."""
        file.write_text(MINIMAL + "  interval_s: 1:30\n")
        assert problems(file) == [
            "dedup.yaml:14: snapshot.interval_s: is not a duration; write one like 90s or 5m"
        ]

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("kafka:\n\tgroup_id: x\n", "dedup.yaml:2: is not YAML: it is indented with a tab"),
            ("kafka: [\n", "is not YAML: "),
            ("kafka: {a: *b}\n", "dedup.yaml:1: is not YAML: an alias (*name) is not allowed"),
            ("- kafka\n", "dedup.yaml:1: must be a mapping of sections"),
            ("kafka: 1\n--- \nkafka: 2\n", "is not YAML: but found another document"),
            ("kafka: " + "[" * 101, "is nested too deeply"),
            ("kafka: \x07\n", "is not YAML: special characters are not allowed"),
        ],
    )
    def test_a_broken_file_is_refused_with_its_line(
        self, file: Path, text: str, reason: str
    ) -> None:
        """What is no mapping of sections is refused before anything else is looked at."""
        file.write_text(text)
        assert reason in refusal(file)

    def test_a_missing_or_unreadable_file_is_named(self, tmp_path: Path) -> None:
        """The message names the file and says how to name another."""
        assert "none.yaml: cannot be read: No such file" in refusal(tmp_path / "none.yaml")
        assert "Is a directory; name an existing file with -c FILE" in refusal(tmp_path)
        (tmp_path / "latin.yaml").write_bytes(b"kafka: \xe9\n")
        assert "is not UTF-8 text" in refusal(tmp_path / "latin.yaml")

    def test_an_empty_file_lacks_everything_required(self, file: Path) -> None:
        """All required leaves are named, each with three ways to set it."""
        file.write_text("kafka:\n")
        lines = problems(file)
        assert [line.split(": ")[1] for line in lines] == [
            "filter.capacity",
            "kafka.bootstrap_servers",
            "kafka.group_id",
            "key.field",
            "sink.topic",
            "snapshot.directory",
            "source.topic",
        ]
        assert lines[2] == (
            "dedup.yaml: kafka.group_id: is required (the consumer group); set it in the file, as "
            "STREAMDEDUP_KAFKA__GROUP_ID, or with --set kafka.group_id=dedup"
        )

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (
                "kafka:\n  group_id: a\n  group_id: b\n",
                "3: kafka.group_id: is set twice, first in line 2",
            ),
            (
                "kafka:\n  group_id: a\nkafka:\n  group_id: b\n",
                "3: kafka: is set twice, first in line 1",
            ),
            (
                "kafka: {consumer: {\n  client_rack: a,\n  client_rack: b}}\n",
                "3: kafka.consumer.client_rack: is set twice, first in line 2",
            ),
        ],
    )
    def test_a_name_that_is_set_twice_is_refused(
        self, file: Path, text: str, expected: str
    ) -> None:
        """Neither of the two wins: both lines are named."""
        file.write_text(text)
        assert f"dedup.yaml:{expected}; delete one of them" in problems(file)

    def test_tags_are_refused(self, file: Path) -> None:
        """A tag such as !env looks like a feature and is none; YAML's own mean what they say."""
        file.write_text(MINIMAL.replace("topic: events\n", "topic: !!str 007\n"))
        assert read(file).source.topic == "007"
        file.write_text(MINIMAL.replace("topic: events\n", "topic: !Ref events\n"))
        (line,) = problems(file)
        assert line.startswith("dedup.yaml:5: source.topic: a tag is not read")
        file.write_text(MINIMAL.replace("group_id: dedup", "group_id: !env GROUP"))
        assert problems(file) == [
            "dedup.yaml:3: kafka.group_id: a tag is not read; write the value itself, in quotes "
            "if it begins with !"
        ]

    @pytest.mark.parametrize("written", ["5", "[1]", "text"])
    def test_a_section_must_be_a_mapping(self, file: Path, written: str) -> None:
        """A section or a passthrough that is no mapping is named as such."""
        file.write_text(MINIMAL + f"delivery: {written}\n")
        assert problems(file, f"kafka.consumer={written}") == [
            "dedup.yaml:14: delivery: must be a mapping of options to values",
            "--set: kafka.consumer: must be a mapping of aiokafka's option names to values",
        ]
