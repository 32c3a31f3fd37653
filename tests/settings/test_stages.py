"""The settings of the two stages of `source.repartition`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from streamdedup.settings import Settings, show
from streamdedup.settings.stages import copying, copying_group, deduplicating, reads_middle
from tests.settings.minimal import read

Stage = Callable[[Settings], Settings]

MIDDLE = "source.repartition={topic: by-key, partitions: 12}"


def differing(before: Settings, after: Settings) -> dict[str, object]:
    """The leaves that a stage changes, by their dotted names, with their values in the stage."""
    then, now = before.model_dump(by_alias=True), after.model_dump(by_alias=True)
    return {
        f"{section}.{name}": value
        for section, options in now.items()
        for name, value in options.items()
        if value != then[section][name]
    }


class TestCopying:
    """The first stage: from the input to the middle topic, without a judgement."""

    def test_it_reads_the_input_and_writes_the_middle(self, file: Path) -> None:
        """Under a group of its own, without a filter; all else is as it was written."""
        settings = read(file, MIDDLE, "source.start=latest", "source.on_growth=accept")
        assert differing(settings, copying(settings)) == {
            "kafka.group_id": "dedup-repartition",
            "filter.kind": "none",
            "filter.capacity": 1,
            "filter.on_full": "stop",
            "sink.topic": "by-key",
        }

    def test_it_has_dead_letters_and_no_other_side_topic(self, file: Path, listed: str) -> None:
        """Duplicates and blocked events are found in the second stage, and so is what the lists say."""
        settings = read(
            file,
            MIDDLE,
            listed,
            f"allowlist.file={file}",
            "blocklist.control_topic=changes",
            "sink={duplicates_topic: again, blocked_topic: blocked, dead_letter_topic: dead}",
            "sink.shadow=true",
            "source.tombstones=judge",
        )
        stage = copying(settings)
        assert stage.sink.duplicates_topic is None
        assert stage.sink.blocked_topic is None
        assert not stage.sink.shadow
        assert (stage.sink.dead_letter_topic, stage.sink.on_rejected) == ("dead", "dead_letter")
        assert stage.blocklist.model_dump() == read(file).blocklist.model_dump()
        assert stage.allowlist.model_dump() == read(file).allowlist.model_dump()
        assert stage.source == settings.source
        assert stage.key == settings.key

    @pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
    def test_it_writes_exactly_once(self, file: Path, guarantee: str) -> None:
        """Whatever holds for the output: what is twice in the middle is there to stay."""
        settings = read(file, MIDDLE, f"delivery.guarantee={guarantee}")
        assert copying(settings).delivery.exactly_once
        assert deduplicating(settings).delivery.guarantee == guarantee

    def test_no_window_is_left(self, file: Path) -> None:
        """The stage has none of the filter's options, whatever they were, but for those of the hash."""
        settings = read(
            file, MIDDLE, "filter.kind=window", "filter.generations=16", "filter.hash=murmur3"
        )
        options = copying(settings).filter
        assert not options.remembers
        assert not options.by_event_time
        assert options.generations == 31
        assert options.hash == "murmur3"

    def test_the_group_is_that_of_the_settings_as_written(self, file: Path) -> None:
        """One name, whether asked for or put into the stage."""
        settings = read(file, MIDDLE, "kafka.group_id=grün")
        assert copying_group(settings) == copying(settings).kafka.group_id == "grün-repartition"


class TestDeduplicating:
    """The second stage: a worker whose input is the middle topic."""

    def test_it_reads_the_middle(self, file: Path) -> None:
        """From its beginning and without a gap, and it never grows, whatever holds for the input."""
        settings = read(
            file,
            MIDDLE,
            "source={start: latest, on_gap: skip, on_growth: accept, on_damaged: skip}",
            "sink.shadow=true",
        )
        assert differing(settings, deduplicating(settings)) == {
            "source.topic": "by-key",
            "source.start": "earliest",
            "source.on_gap": "stop",
            "source.on_growth": "refuse",
        }


class TestStages:
    """What holds for both."""

    def test_only_the_second_stage_reads_the_middle(self, file: Path) -> None:
        """Not the first, nor the settings as they were written, nor a worker without a middle topic."""
        settings = read(file, MIDDLE)
        assert reads_middle(deduplicating(settings))
        assert not reads_middle(copying(settings))
        assert not reads_middle(settings)
        assert not reads_middle(read(file))

    @pytest.mark.parametrize("stage", [copying, deduplicating])
    def test_the_settings_as_written_stay_as_they_are(self, file: Path, stage: Stage) -> None:
        """A stage is a copy; it keeps `source.repartition` and the origins."""
        settings = read(file, MIDDLE)
        before = show(settings)
        made = stage(settings)
        assert show(settings) == before
        assert made.source.repartition == settings.source.repartition
        assert made.origins == settings.origins

    @pytest.mark.parametrize("stage", [copying, deduplicating])
    def test_there_is_one_stage_without_a_middle_topic(self, file: Path, stage: Stage) -> None:
        """To ask for one of two is the mistake of the program, not of the operator."""
        settings = read(file)
        with pytest.raises(ValueError, match=r"source\.repartition is not set"):
            stage(settings)
