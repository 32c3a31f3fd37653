"""A kept filter: nothing that was flushed is lost, nothing that is damaged is believed, and one process has it."""

import copy
import errno
import logging
import operator as op
import os
import pickle
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any
from uuid import UUID

import numpy as np
import pytest

import streamdedup
from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.kept import journal, kept
from streamdedup.kept.directory import Directory
from streamdedup.kept.kept import Kept
from streamdedup.kept.log import HEADER_BYTES, ROWS_MAX
from tests.broker.base import DEADLINE_S, wait_until
from tests.library import config_of, key_of, keys_of, ways

CUCKOO = {"kind": "cuckoo", "capacity": 10_000, "error_rate": 1e-9}
DAY_MS = 86_400_000


def _as_killed(directory: Path, to: Path) -> Path:
    """Return a copy of what the disk has now, as a kill leaves it."""
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(directory, to))


def _known(directory: Path, keys: list[str]) -> list[str]:
    with streamdedup.open(directory) as seen:
        return [key for key in keys if key in seen]


@contextmanager
def _files_of_at_most(size_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class TestReplay:
    """What is opened again is what it was, in all kinds, whatever was done to it."""

    @ways
    @pytest.mark.parametrize("log_bytes_max", [300, journal.LOG_BYTES_MAX])
    def test_it_is_what_it_was(
        self,
        kind: str,
        options: dict[str, Any],
        log_bytes_max: int,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Keys one by one and together, taken out, cleared, in time; from the log, and over several savings."""
        monkeypatch.setattr(journal, "LOG_BYTES_MAX", log_bytes_max)
        directory, chance = tmp_path / "seen", Random(1)
        with streamdedup.open(directory, **config_of(kind, 400, options)) as seen:
            for step in range(60):
                _change(seen, chance, step)
                if step % 20 == 10:
                    self._is_the_same(seen, _reopened(seen, directory, tmp_path / "killed"))
        self._is_the_same(seen, directory)

    @staticmethod
    def _is_the_same(seen: Kept, directory: Path) -> None:
        probes = keys_of(seen.filter, range(5000))
        with streamdedup.open(directory) as again:
            assert again.filter == seen.filter
            found, expected = again.contains_many(probes), seen.contains_many(probes)
            assert found.tolist() == expected.tolist()
            assert getattr(again.filter, "watermark", 0) == getattr(seen.filter, "watermark", 0)

    def test_a_multiset_counts_as_before(self, tmp_path: Path) -> None:
        """Each addition that was made, and each that was taken back."""
        directory = tmp_path / "seen"
        with streamdedup.open(directory, **CUCKOO, multiset=True) as seen:
            for key in "aaabb":
                seen.add(key)
            seen.add_many(list("bc"))
            seen.discard("a")
            reopened = _reopened(seen, directory, tmp_path / "killed")
        for place in (directory, reopened):
            with streamdedup.open(place) as seen:
                found = [[seen.discard(key) for _ in range(4)] for key in "abc"]
            assert found == [[True, True, False, False], [True] * 3 + [False], [True] + [False] * 3]

    def test_keys_need_not_be_texts(self, tmp_path: Path) -> None:
        """Each of them is logged as what it is."""
        directory = tmp_path / "seen"
        keys: list[Any] = [5, ("a", 5), UUID(int=5), b"\xffi\x05"]
        with streamdedup.open(directory, **CUCKOO) as seen:
            assert all(seen.add(key) for key in keys)
            assert seen.discard(keys[0])
            reopened = _reopened(seen, directory, tmp_path / "killed")
        for place in (directory, reopened):
            with streamdedup.open(place) as seen:
                assert [key in seen for key in keys] == [False, True, True, True]

    def test_integers_of_a_range_may_be_negative(self, tmp_path: Path) -> None:
        """And come as arrays of any integer type."""
        with streamdedup.open(tmp_path / "seen", kind="bitmap", range=[-5, 9]) as seen:
            seen.add(-3)
            seen.add_many(np.array([-4, 2, 7], dtype=np.int8))
            seen.discard(7)
        with streamdedup.open(tmp_path / "seen") as seen:
            known = [number for number in range(-5, 10) if number in seen]
        assert known == [-4, -3, 2]

    def test_an_array_may_change_after_the_call(self, tmp_path: Path) -> None:
        """Before it is written."""
        with streamdedup.open(tmp_path / "seen", **CUCKOO, multiset=True) as seen:
            digests = seen.filter.digests(["a", "b"])
            seen.add_many(digests)
            digests[:] = 0
        assert _known(tmp_path / "seen", ["a", "b"]) == ["a", "b"]

    def test_a_key_may_change_after_the_call(self, tmp_path: Path) -> None:
        """What is kept is what it was; of keys that only the filter can read, the thread that writes reads none."""
        number = _Number(7)
        with streamdedup.open(tmp_path / "seen", **CUCKOO) as seen:
            assert (seen.add(number), seen.add(number)) == (True, False)  # type: ignore[arg-type]
            number.value = 8
        with streamdedup.open(tmp_path / "seen") as seen:
            assert (7 in seen, 8 in seen, len(seen)) == (True, False, 1)
        with streamdedup.open(tmp_path / "bits", kind="bitmap", range=[0, 99]) as bits:
            for wrong in (number, 1.0):
                with pytest.raises(TypeError, match="keys are integers"):
                    bits.add(wrong)  # type: ignore[arg-type]
            bits.add(np.int8(9))
            bits.flush()
        with streamdedup.open(tmp_path / "bits") as bits:
            assert (9 in bits, len(bits)) == (True, 1)

    def test_what_grew_within_another_max_size_is_what_it_was(self, tmp_path: Path) -> None:
        """If that is left out the next time, it holds as given last; a smaller one holds for what comes after."""
        options = {"kind": "bloom", "capacity": 100, "on_full": "grow"}
        streamdedup.open(tmp_path / "seen", **options, max_size="1KiB").close()
        for max_size in ("1MiB", "2KiB"):
            with streamdedup.open(tmp_path / "seen", max_size=max_size) as seen:
                seen.update(
                    f"{max_size} {number}" for number in range(2000 if max_size == "1MiB" else 9)
                )
            with streamdedup.open(tmp_path / "seen") as again:
                assert again.filter == seen.filter
                assert again.filter.capacity == seen.filter.capacity

    def test_a_window_by_time_knows_its_times(self, tmp_path: Path) -> None:
        """A key is forgotten when it would have been."""
        directory = tmp_path / "seen"
        options = {"kind": "window", "capacity": 1000, "error_rate": 1e-9, "retention": "7d"}
        with streamdedup.open(directory, **options) as seen:
            seen.add("a", 0)
            seen.add_many(["b", "c"], np.array([3, 4]) * DAY_MS)
            with pytest.raises(ConfigError):
                seen.add("without a time")
        with streamdedup.open(directory) as seen:
            assert [key in seen for key in "abc"] == [True] * 3
            seen.add("d", 9 * DAY_MS)
            assert [key in seen for key in "abc"] == [False, True, True]

    def test_a_log_that_is_cut_ends_there(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """With a warning that names the file; and it goes on from there."""
        caplog.set_level(logging.WARNING)  # whatever a test before has set
        directory = tmp_path / "seen"
        with streamdedup.open(directory, **CUCKOO) as seen:
            for key in "ab":
                seen.add(key)
                seen.flush()
        log = directory / "00000001.log"
        log.write_bytes(log.read_bytes()[:-1])
        with streamdedup.open(directory) as seen:
            assert ["a" in seen, "b" in seen] == [True, False]
            seen.add("c")
        assert "00000001.log: its last 27 bytes are not whole" in caplog.text
        caplog.clear()
        assert _known(directory, list("abc")) == ["a", "c"]
        assert not caplog.records


class _Number:
    """An integer for `numbers.Integral`, which may change."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


Integral.register(_Number)


def _change(seen: Kept, chance: Random, step: int) -> None:
    """Change something, in one of the ways that it has."""
    numbers = [chance.randrange(300) for _ in range(chance.choice([1, 1, 7, 30]))]
    keys, times = [key_of(seen.filter, number) for number in numbers], []
    if hasattr(seen.filter, "clock") and not seen.filter.clock.by_count:
        times = [
            np.sort(np.array([chance.randrange(3_600_000) for _ in numbers])) + step * 3_600_000
        ]
    takes_out = hasattr(seen.filter, "discard")
    ways: list[Callable[[], object]] = [
        lambda: [seen.add(key, *(int(each[i]) for each in times)) for i, key in enumerate(keys)],
        lambda: seen.add_many(keys_of(seen.filter, numbers), *times),
    ]
    if not times:
        ways.append(lambda: seen.update(keys))
    if takes_out:
        # Of others, a removal may take out a look-alike.
        there = [key for key in keys if key in seen]
        ways += [
            lambda: [seen.discard(key) for key in there],
            lambda: seen.remove_many(seen.filter.digests(there[:1])) if there else None,
        ]
    chance.choice(ways)()
    if step == 30:
        seen.clear()


def _reopened(seen: Kept, directory: Path, to: Path) -> Path:
    seen.flush()
    return _as_killed(directory, to)


class TestDisk:
    """When what was changed is on the disk, and what becomes of it if the disk refuses it."""

    def test_it_is_written_without_a_call(self, tmp_path: Path) -> None:
        """Within a beat, and synchronized."""

        def on_disk() -> list[str]:
            return _known(_as_killed(tmp_path / "seen", tmp_path / "killed"), ["a", "b"])

        with streamdedup.open(tmp_path / "seen", **CUCKOO) as seen:
            seen.add("a")
            wait_until(lambda: on_disk() == ["a"], DEADLINE_S, lambda: f"it has {on_disk()}")
            seen.add("b")
            wait_until(lambda: on_disk() == ["a", "b"], DEADLINE_S, lambda: f"it has {on_disk()}")

    def test_flush_returns_after_fsync(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Not after a write alone, which a loss of power takes back."""
        synced = list[bytes]()
        log = tmp_path / "seen" / "00000001.log"

        def fsync(_fd: int) -> None:
            synced.append(log.read_bytes() if log.exists() else b"")

        with streamdedup.open(tmp_path / "seen", **CUCKOO) as seen:
            monkeypatch.setattr(os, "fsync", fsync)
            seen.add("a")
            seen.flush()
            assert synced[-1] == log.read_bytes()
            assert len(synced[-1]) == 44 + 12 + 16

    def test_a_full_disk_loses_nothing(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """`flush` says so; one error is logged, without a key; what waits is written once there is space."""
        keys = [f"key {number}" for number in range(5000)]
        with streamdedup.open(tmp_path / "seen", **CUCKOO) as seen:
            with _files_of_at_most(1000):
                seen.update(keys)
                for _ in range(2):
                    with pytest.raises(
                        SnapshotError, match=r"cannot write .*00000001\.log: File too large"
                    ):
                        seen.flush()
                assert all(key in seen for key in keys)
            seen.flush()
            killed = _as_killed(tmp_path / "seen", tmp_path / "killed")
        (record,) = caplog.records
        assert "00000001.log: File too large; this is tried again" in record.getMessage()
        assert "key 1" not in caplog.text
        assert _known(killed, keys) == keys

    def test_what_the_disk_refuses_at_the_end_is_said(self, tmp_path: Path) -> None:
        """By `close`, which lets go of the directory all the same."""
        seen = streamdedup.open(tmp_path / "seen", **CUCKOO)
        seen.add("a")
        seen.flush()
        with _files_of_at_most(10):
            seen.add("b")
            with pytest.raises(SnapshotError, match="File too large"):
                seen.close()
        assert _known(tmp_path / "seen", ["a", "b"]) == ["a"]

    def test_what_a_failed_fsync_covered_is_written_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Since a second fsync may succeed although the data is lost."""
        fsync = os.fsync

        def failing(fd: int) -> None:
            os.pwrite(fd, bytes(28), 44)  # what the disk has lost
            raise OSError(errno.EIO, "Input/output error")

        with streamdedup.open(tmp_path / "seen", **CUCKOO) as seen:
            seen.add("a")
            monkeypatch.setattr(os, "fsync", failing)
            with pytest.raises(SnapshotError, match="Input/output error"):
                seen.flush()
            monkeypatch.setattr(os, "fsync", fsync)
            seen.flush()
            killed = _as_killed(tmp_path / "seen", tmp_path / "killed")
        assert _known(killed, ["a"]) == ["a"]

    def test_what_waits_is_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """If the disk refuses too much, an addition is refused, before it changes anything; and others wait for it."""
        for module in (kept, journal):
            monkeypatch.setattr(module, "WAITING_MAX", 100)
        keys = [str(number) for number in range(8000)]
        with streamdedup.open(tmp_path / "seen", **CUCKOO) as seen:
            with _files_of_at_most(40):
                for _ in range(2):  # the first time, the thread takes what waits, and keeps it
                    with pytest.raises(SnapshotError, match="File too large"):
                        for key in keys:
                            seen.add(key)
                assert 100 <= len(seen) < 8000
                for change in (seen.add, seen.discard, lambda key: seen.add_many([key])):
                    with pytest.raises(SnapshotError, match="File too large"):
                        change("one more")
                assert "one more" not in seen
            for key in keys:
                seen.add(key)
                assert len(seen._waiting) <= 100
            many = [f"many {key}" for key in keys[:1000]]
            seen.add_many(many)
            seen.add_many(["the last"])
        expected = [*keys, *many, "the last"]
        assert _known(tmp_path / "seen", expected) == expected

    def test_it_is_saved_anew_when_its_log_is_long(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And what came before is removed."""
        monkeypatch.setattr(journal, "LOG_BYTES_MAX", 1000)
        with streamdedup.open(tmp_path / "seen", kind="bloom", capacity=200) as seen:
            for last, number in ((50, 1), (120, 2)):
                seen.update(map(str, range(last)))
                seen.flush()
                names = sorted(path.name for path in (tmp_path / "seen").iterdir())
                assert names == [f"0000000{number}.filter", f"0000000{number}.log", "lock"]

    def test_it_is_whole_at_each_step(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A kill before or after any call that changes a file: all that was flushed is there."""
        monkeypatch.setattr(journal, "LOG_BYTES_MAX", 200)
        killed, flushed = list[tuple[Path, list[str]]](), list[str]()
        options = {"kind": "exact", "capacity": 10, "on_full": "grow", "max_size": "1MiB"}
        with (
            _copying(tmp_path, lambda copied: killed.append((copied, [*flushed]))),
            streamdedup.open(tmp_path / "seen", **options) as seen,
        ):
            for number in range(40):
                seen.add(str(number))
                seen.flush()
                flushed.append(str(number))
        assert len(killed) > 100
        assert (tmp_path / "seen" / "00000003.filter").exists()
        for directory, expected in killed:
            if expected:
                assert set(_known(directory, [*map(str, range(40))])) >= set(expected), directory
            else:
                with streamdedup.open(directory, kind="exact", capacity=10) as seen:
                    assert len(seen) <= 1

    def test_what_is_in_a_saved_filter_is_in_no_log_after_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What waits when it is saved, and a log that could not be removed: in a multiset it would count twice."""
        monkeypatch.setattr(journal, "LOG_BYTES_MAX", 50)
        directory, late, save = tmp_path / "seen", ["late"], journal.Journal._save_if_long

        def adding(self: journal.Journal) -> None:
            if self._log.size_bytes > 1000 and late:
                seen.add(late.pop())
            save(self)

        monkeypatch.setattr(journal.Journal, "_save_if_long", adding)
        with streamdedup.open(directory, kind="counting", capacity=10, multiset=True) as seen:
            seen.add("a")
            seen.flush()
            log = (directory / "00000001.log").read_bytes()
            for _ in range(100):
                seen.add("b")
            seen.flush()
        assert not late
        assert not (directory / "00000001.log").exists()
        (directory / "00000001.log").write_bytes(log)
        with streamdedup.open(directory) as seen:
            assert [[seen.discard(key) for _ in range(2)] for key in ("a", "late")] == [
                [True, False]
            ] * 2

    def test_a_save_that_fails_leaves_the_logs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """All of them lead on from the filter before; it is tried again, and they go."""
        monkeypatch.setattr(journal, "LOG_BYTES_MAX", 200)
        with streamdedup.open(tmp_path / "seen", kind="bloom", capacity=1000) as seen:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "rename", _refused)
                for last in (300, 310):
                    seen.update(map(str, range(last)))
                    seen.flush()
            names = sorted(path.name for path in (tmp_path / "seen").iterdir())
            assert names == ["00000001.filter", "00000001.log", "00000002.log", "lock"]
            assert caplog.text.count("the log goes on") == 1
            killed = _as_killed(tmp_path / "seen", tmp_path / "killed")
            seen.update(map(str, range(900)))
            seen.flush()
            names = sorted(path.name for path in (tmp_path / "seen").iterdir())
            assert names == ["00000003.filter", "00000003.log", "lock"]
        keys = [*map(str, range(900))]
        assert _known(killed, keys) == keys[:310]
        assert _known(tmp_path / "seen", keys) == keys


class _Calling(Thread):
    """A thread that calls something once, and keeps its error."""

    error: Exception | None = None

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._call = call

    def run(self) -> None:
        try:
            self._call()
        except Exception as error:
            self.error = error


def _frame_of(thread: Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return frame.f_code.co_name if frame else ""


def _interrupted(*_arguments: object) -> None:
    raise KeyboardInterrupt


def _refused(*_arguments: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system")


@contextmanager
def _copying(tmp_path: Path, take: Callable[[Path], None]) -> Iterator[None]:
    """Copy tmp_path/seen before each call that changes a file or a name there."""
    copies = 0

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal copies
            if (tmp_path / "seen").exists():
                copies += 1
                take(_as_killed(tmp_path / "seen", tmp_path / f"killed {copies}"))
            return real(*arguments, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("pwrite", "write", "fsync", "rename", "ftruncate", "unlink"):
            patch.setattr(os, name, watched(getattr(os, name)))
        yield


class TestDirectory:
    """Whose directory it is, and with which options."""

    def test_one_object_has_it(self, tmp_path: Path) -> None:
        """Another one is refused, by the name of the directory, until the first is closed."""
        directory = tmp_path / "seen"
        with streamdedup.open(directory, **CUCKOO):
            for _ in range(2):
                with pytest.raises(
                    ConfigError, match=rf"^{directory} is in use, by another process"
                ):
                    streamdedup.open(directory)
        streamdedup.open(directory).close()

    def test_options_may_be_left_out_or_given_again(self, tmp_path: Path) -> None:
        """In whatever spelling; a growing one may be given another size."""
        rows: list[dict[str, Any]] = [
            {"kind": "cuckoo", "capacity": 20_000, "error_rate": 1e-6, "multiset": False},
            {"kind": "exact", "capacity": 1000},
            {"kind": "window", "capacity": 1000, "retention": "1d", "late": "drop"},
            {"kind": "bitmap", "range": [-5, 9]},
            {"kind": "bloom", "capacity": "20k", "on_full": "stop", "normalize": "url"},
            {"kind": "bloom", "capacity": 1000, "on_full": "grow", "max_size": "1MiB"},
            {"kind": "cuckoo", "capacity": 1000, "hash": "siphash", "hash_key": bytes(16)},
        ]
        for number, options in enumerate(rows):
            secret = {name: options[name] for name in options if name == "hash_key"}
            streamdedup.open(tmp_path / str(number), **options).close()
            for again in (options, secret, {"kind": options["kind"], **secret}):
                streamdedup.open(tmp_path / str(number), **again).close()
        streamdedup.open(tmp_path / "0", capacity="20k", error_rate=0.000001).close()
        with streamdedup.open(tmp_path / "5", max_size="4MiB") as seen:
            assert seen.filter.size_bytes_max > 2 << 20  # type: ignore[attr-defined]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"capacity": 7}, r"^capacity is 7, but .*seen was made with 10000; leave it out, or "),
            (
                {"kind": "bloom", "capacity": 7},
                r"^kind is 'bloom', but .* made with 'cuckoo'; leave",
            ),
            (
                {"error_rate": 0.5, "multiset": True},
                r"^error_rate is 0\.5, .*; multiset is True, .*; leave them out",
            ),
            ({"hash": "murmur3"}, r"^hash is 'murmur3', but .* made with 'siphash'"),
            ({"hash_key": bytes(16)}, "leave hash_key out"),
            ({"on_full": "grow"}, "^on_full is 'grow', but .* made with 'warn'"),
            ({"normalize": "url"}, "^normalize is .*, but .* made with None"),
            ({"capactiy": 7}, "did you mean capacity"),
            ({"max_size": "1GiB"}, "^max_size .*grow"),
        ],
    )
    def test_other_options_are_refused(
        self, tmp_path: Path, options: dict[str, Any], message: str
    ) -> None:
        """By name; the directory is free again, and as it was."""
        directory = tmp_path / "seen"
        with streamdedup.open(directory, **CUCKOO) as seen:
            seen.add("a")
        with pytest.raises(ConfigError, match=message):
            streamdedup.open(directory, **options)
        assert _known(directory, ["a"]) == ["a"]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                {},
                r"there is no filter in .*seen, and a new one needs a kind and a capacity: give them",
            ),
            ({"capacity": 7}, "needs a kind"),
            ({"kind": "cuckoo"}, "capacity is required"),
            ({"kind": "fuse", "keys": ["a"]}, "kind fuse is built once"),
            ({"kind": "cuckoo", "capacity": 0}, "capacity is 0"),
        ],
    )
    def test_a_new_one_is_not_made_without_its_options(
        self, tmp_path: Path, options: dict[str, Any], message: str
    ) -> None:
        """And nothing is left of the attempt."""
        with pytest.raises(ConfigError, match=message):
            streamdedup.open(tmp_path / "seen", **options)
        assert not list(tmp_path.iterdir())

    def test_its_digests_are_secret(self, tmp_path: Path) -> None:
        """Each directory has a secret of its own, unless a hash is given."""
        with (
            streamdedup.open(tmp_path / "a", **CUCKOO) as a,
            streamdedup.open(tmp_path / "b", **CUCKOO) as b,
            streamdedup.open(tmp_path / "c", **CUCKOO, hash="murmur3") as c,
        ):
            assert a.filter.hash.drawn
            assert a.filter.hash.key != b.filter.hash.key
            assert c.filter.hash.name == "murmur3"

    @pytest.mark.parametrize("keep", [0, 100, -1])
    def test_a_damaged_filter_is_refused(self, tmp_path: Path, keep: int) -> None:
        """By its path, with what to do; the directory is free again."""
        directory = tmp_path / "seen"
        streamdedup.open(directory, **CUCKOO).close()
        path = directory / "00000001.filter"
        path.write_bytes(path.read_bytes()[:keep])
        for _ in range(2):
            with pytest.raises(
                SnapshotError, match=r"00000001\.filter.*; or remove .*seen: then no key"
            ):
                streamdedup.open(directory)

    def test_files_that_do_not_belong_together_are_refused(self, tmp_path: Path) -> None:
        """A log whose header is damaged, one of another filter, and logs without their filter."""
        for name in ("seen", "other"):
            with streamdedup.open(tmp_path / name, **CUCKOO) as seen:
                seen.add("a")
        log = tmp_path / "seen" / "00000001.log"
        right, other = log.read_bytes(), (tmp_path / "other" / "00000001.log").read_bytes()
        for wrong, message in ((other, "is of another filter"), (bytes(99), "is damaged")):
            log.write_bytes(wrong)
            with pytest.raises(
                SnapshotError, match=rf"cannot use .*00000001\.log: it {message}; take"
            ):
                streamdedup.open(tmp_path / "seen")
        log.write_bytes(right)
        (tmp_path / "seen" / "00000001.filter").unlink()
        with pytest.raises(
            SnapshotError, match=r"the filter to which 00000001\.log belongs is missing"
        ):
            streamdedup.open(tmp_path / "seen", **CUCKOO)

    @pytest.mark.parametrize(
        "options",
        [
            {"kind": "bloom", "capacity": 100},  # which cannot take out
            {"kind": "cuckoo", "capacity": 1, "on_full": "stop"},
        ],
    )
    def test_a_log_of_a_filter_with_the_same_hash_is_refused(
        self, tmp_path: Path, options: dict[str, Any]
    ) -> None:
        """If it has what the filter cannot have done."""
        with streamdedup.open(tmp_path / "other", **CUCKOO, hash="murmur3") as seen:
            seen.update([*"ab"])
            seen.discard("a")
        streamdedup.open(tmp_path / "seen", **options, hash="murmur3").close()
        shutil.copy(tmp_path / "other" / "00000001.log", tmp_path / "seen")
        with pytest.raises(SnapshotError, match=r"00000001\.log: it is of another filter; take"):
            streamdedup.open(tmp_path / "seen")

    def test_damage_before_the_last_write_is_refused(self, tmp_path: Path) -> None:
        """A kill leaves no more than one write unfinished, and none in a log that another one follows."""
        path, log = tmp_path / "seen", tmp_path / "seen" / "00000001.log"
        rows = np.random.default_rng(1).integers(1 << 64, size=(80_000, 2), dtype=np.uint64)
        with streamdedup.open(path, kind="exact", capacity=80_000) as seen:
            seen.add_many(rows)
        whole = log.read_bytes()
        first = HEADER_BYTES + 12 + 16 * ROWS_MAX
        for at in (first + 30, first + 9):
            log.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(
                SnapshotError, match=rf"is damaged at byte {first}, and .* -s {first}"
            ):
                streamdedup.open(path)
            assert log.stat().st_size == len(whole)
        os.truncate(log, first)  # as the message says
        with streamdedup.open(path) as seen:
            assert len(seen) == ROWS_MAX
        os.truncate(log, first - 1)
        (path / "00000002.log").write_bytes(b"begun")
        with pytest.raises(SnapshotError, match=rf"damaged at byte {HEADER_BYTES}"):
            streamdedup.open(path)

    def test_one_that_cannot_be_listed_is_let_go(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The error says what it is, also of the next attempt; not that it is in use."""
        with monkeypatch.context() as denied:
            denied.setattr(Path, "iterdir", _refused)
            for _ in range(2):
                with pytest.raises(SnapshotError, match="Read-only"):
                    Directory(tmp_path / "seen")
        Directory(tmp_path / "seen").close()

    def test_what_a_killed_start_left_is_removed(self, tmp_path: Path) -> None:
        """A log whose filter was not saved, and the beginning of a filter."""
        with streamdedup.open(tmp_path / "other", **CUCKOO):
            left = (tmp_path / "other" / "00000001.log").read_bytes()
        directory = tmp_path / "seen"
        with streamdedup.open(directory, **CUCKOO) as seen:
            seen.add("a")
        (directory / "00000002.log").write_bytes(left)
        (directory / ".streamdedup-0123456789abcdef.tmp").write_bytes(b"half")
        assert _known(directory, ["a"]) == ["a"]
        names = sorted(path.name for path in directory.iterdir())
        assert names == ["00000001.filter", "00000001.log", "lock"]

    def test_a_filter_that_takes_no_keys_is_refused(self, tmp_path: Path) -> None:
        """As one that somebody put there."""
        streamdedup.open(tmp_path, **CUCKOO).close()
        fuse = streamdedup.build({"kind": "fuse", "keys": ["a"]})
        streamdedup.save(fuse, tmp_path / "00000001.filter")
        with pytest.raises(SnapshotError, match="holds a fuse, which takes no keys"):
            streamdedup.open(tmp_path)

    def test_a_directory_that_cannot_be_made_is_refused(self, tmp_path: Path) -> None:
        """The message names it, and what to do."""
        (tmp_path / "file").touch()
        with pytest.raises(SnapshotError, match=r"^cannot (read|write) .*file.*: .*; see "):
            streamdedup.open(tmp_path / "file" / "seen", **CUCKOO)

    @pytest.mark.parametrize("name", ["00000001.log", "lock"])
    def test_a_link_is_not_followed(self, tmp_path: Path, name: str) -> None:
        """Whoever may write to the directory would have another file of this user's cut short, or read."""
        victim, place = tmp_path / "victim", tmp_path / "seen"
        victim.write_text("precious")
        streamdedup.open(place, **CUCKOO).close()
        (place / name).unlink()
        (place / name).symlink_to(victim)
        with pytest.raises(SnapshotError, match="ELOOP"):
            streamdedup.open(place)
        assert victim.read_text() == "precious"

    @pytest.mark.usefixtures("no_umask")
    def test_directories_are_for_their_owner(self, tmp_path: Path) -> None:
        """All that are made, and the files in them, whatever the umask leaves."""
        streamdedup.open(tmp_path / "a" / "b", **CUCKOO).close()
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
        of_files = dict.fromkeys(("lock", "00000001.log", "00000001.filter"), 0o600)
        assert modes == {"a": 0o700, "b": 0o700, **of_files}


class TestObject:
    """What a program does with it."""

    def test_it_is_a_set(self, tmp_path: Path) -> None:
        """With the methods of one; and it says what it is."""
        with streamdedup.open(tmp_path / "seen", **CUCKOO) as seen:
            assert not seen
            assert [seen.add("a"), seen.add("a"), seen.add(b"b")] == [True, False, True]
            assert seen.add_many(["b", "c"]).tolist() == [False, True]
            seen.update(["d"], (key for key in ("e", "f")))
            assert ["a" in seen, "z" in seen, len(seen), bool(seen)] == [True, False, 6, True]
            assert seen.contains_many(["c", "z"]).tolist() == [True, False]
            assert [seen.discard("a"), seen.discard("a"), "a" in seen] == [True, False, False]
            assert seen.remove_many(seen.filter.digests(["b", "b"])).tolist() == [True, False]
            assert f"kept in {tmp_path / 'seen'}" in repr(seen)
            assert ": <Cuckoo 4 of 10,000 keys" in repr(seen)

    def test_it_is_asked_as_its_filter_is(self, tmp_path: Path) -> None:
        """A copy of it is a filter of its own, which is not kept; nor is what `|` makes, so that is refused."""
        with streamdedup.open(tmp_path / "seen", **CUCKOO) as seen:
            seen.update(["a", "b", "c"])
            names = ("capacity", "error_rate", "error_rate_now", "fill_ratio", "size_bytes", "hash")
            assert [getattr(seen, name) for name in names] == [
                getattr(seen.filter, name) for name in names
            ]
            assert seen.kind == "cuckoo"
            seen.save(tmp_path / "saved")
            copies = [seen.copy(), streamdedup.Cuckoo.load(tmp_path / "saved")]
            for copied in (*copies, streamdedup.Cuckoo.from_bytes(seen.to_bytes())):
                assert copied == seen.filter
                copied.add("d")
            assert "d" not in seen
            for wrong in (op.or_, op.ior, op.and_, op.iand):
                with pytest.raises(
                    TypeError, match=r"a kept filter has no \| and &.*seen\.filter \|"
                ):
                    wrong(seen, seen.copy())

    def test_what_a_set_has_and_it_lacks_is_refused_by_name(self, tmp_path: Path) -> None:
        """As of a filter; so is a file in its place, and a directory in the place of a file."""
        with streamdedup.open(tmp_path / "seen", **CUCKOO) as seen:
            lacking: Any = seen
            for call in (lacking.pop, lambda: lacking - {"a"}, lambda: lacking.remove("a")):
                with pytest.raises(TypeError, match="is not for filters: "):
                    call()
            with pytest.raises(TypeError, match="a kept filter has no"):
                lacking.union(seen.copy())
            with pytest.raises(SnapshotError, match=r"is a directory; .* by streamdedup\.open$"):
                streamdedup.load(tmp_path / "seen")
            seen.save(tmp_path / "saved")
        with pytest.raises(ConfigError, match=r"is a file, .* loaded by streamdedup\.load$"):
            streamdedup.open(tmp_path / "saved")

    def test_what_takes_no_key_out_says_so(self, tmp_path: Path) -> None:
        """By a TypeError, not by an attribute of ours."""
        with streamdedup.open(tmp_path / "seen", kind="bloom", capacity=10) as seen:
            for remove in (lambda: seen.discard("a"), lambda: seen.remove_many(["a"])):
                with pytest.raises(TypeError, match="kind bloom takes no key out"):
                    remove()

    def test_a_wrong_key_is_not_logged(self, tmp_path: Path) -> None:
        """Nor those of a call that is refused because the filter is full."""
        with streamdedup.open(tmp_path / "seen", kind="bloom", capacity=3, on_full="stop") as seen:
            for wrong in (3.5, "\ud800"):
                with pytest.raises((TypeError, ValueError)):
                    seen.add(wrong)  # type: ignore[arg-type]
            with pytest.raises(streamdedup.FilterFullError):
                seen.add_many([*"abcdef"])
            seen.add("a")
        with streamdedup.open(tmp_path / "seen") as seen:
            assert len(seen) == 1

    def test_once_closed_it_can_be_asked(self, tmp_path: Path) -> None:
        """And not be changed; to close it again does nothing."""
        with streamdedup.open(tmp_path / "seen", **CUCKOO) as seen:
            seen.add("a")
        seen.close()
        assert "a" in seen
        for change in (seen.add, lambda key: seen.add_many([key]), seen.discard):
            with pytest.raises(ValueError, match=r"is closed; open .*seen again to change it"):
                change("b")
        with pytest.raises(ValueError, match="is closed"):
            seen.flush()

    def test_two_threads_may_close_it(self, tmp_path: Path) -> None:
        """One of them does."""
        seen = streamdedup.open(tmp_path / "seen", **CUCKOO)
        closers = [_Calling(seen.close) for _ in range(2)]
        with seen._lock:
            for closer in closers:
                closer.start()
            wait_until(
                lambda: all(_frame_of(closer) == "close" for closer in closers),
                DEADLINE_S,
                lambda: "they do not close",
            )
        for closer in closers:
            closer.join()
        assert [closer.error for closer in closers] == [None, None]

    def test_an_interrupt_while_it_is_closed_loses_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nobody else has the directory while the thread still writes; the next call goes on."""
        seen, goes_on, fsync = streamdedup.open(tmp_path / "seen", **CUCKOO), Event(), os.fsync
        monkeypatch.setattr(os, "fsync", lambda fd: (goes_on.wait(DEADLINE_S), fsync(fd)))
        seen.add("a")
        with monkeypatch.context() as interrupted:
            for one, name in ((seen._journal, "flush"), (seen._journal._thread, "join")):
                interrupted.setattr(one, name, _interrupted)
            with pytest.raises(KeyboardInterrupt):
                seen.close()
        with pytest.raises(ConfigError, match="is in use"):
            streamdedup.open(tmp_path / "seen")
        goes_on.set()
        seen.close()
        assert _known(tmp_path / "seen", ["a"]) == ["a"]

    def test_threads_share_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each key is new to one of them, and what they did is kept, in its order, while it is saved anew."""
        monkeypatch.setattr(journal, "LOG_BYTES_MAX", 3000)
        keys = [str(number) for number in range(2000)]
        with streamdedup.open(tmp_path / "seen", **CUCKOO) as seen:

            def add(first: int) -> int:
                new = sum(map(seen.add, keys[first:] + keys[:first]))
                for key in keys[first : first + 400]:
                    seen.discard(key)
                    seen.flush() if key.endswith("77") else None
                return new + int(seen.add_many([f"{key}+" for key in keys]).sum())

            with ThreadPoolExecutor(4) as threads:
                new = sum(threads.map(add, range(0, 2000, 500)))
            expected = [[key in seen for key in keys], len(seen)]
        assert new >= 4000
        with streamdedup.open(tmp_path / "seen") as seen:
            assert [[key in seen for key in keys], len(seen)] == expected
            assert not any((tmp_path / "seen").glob("00000001.*"))

    def test_a_full_one_warns_where_it_is_used(self, tmp_path: Path) -> None:
        """Not in a line of ours, which Python would name for one filter only."""
        with streamdedup.open(tmp_path / "seen", kind="bloom", capacity=2) as seen:
            with pytest.warns(streamdedup.FilterFullWarning) as warned:
                seen.update([*"abcd"])
            assert [each.filename for each in warned] == [__file__]

    def test_it_is_not_copied(self, tmp_path: Path) -> None:
        """Two objects cannot keep one directory; the filter itself can be copied."""
        with streamdedup.open(tmp_path / "seen", **CUCKOO) as seen:
            for way in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(
                    TypeError, match=r"seen cannot be copied or pickled, .*`filter`"
                ):
                    way(seen)
            seen.add("a")
            assert "a" in copy.copy(seen.filter)

    @pytest.mark.skipif(
        sys.platform == "darwin", reason="its libraries refuse a fork among threads"
    )
    def test_the_child_of_a_fork_may_only_ask(self, tmp_path: Path) -> None:
        """Its changes are refused, its end changes nothing, and it does not keep the directory from others."""
        seen = streamdedup.open(tmp_path / "seen", **CUCKOO)
        seen.add("a")
        reads, writes = os.pipe()
        child = os.fork()
        if not child:
            said = "nothing"
            try:
                seen.add("b")
            except ValueError as error:
                said = f"{'a' in seen} {'b' in seen} {error}"
            seen.close()
            os.write(writes, said.encode())
            signal.pause()
        said = os.read(reads, 1000).decode()
        os.close(reads)
        os.close(writes)
        try:
            assert said.startswith("True False the filter in ")
            assert "kept by the process that opened it" in said
            seen.add("c")
            seen.close()
            assert _known(tmp_path / "seen", ["a", "b", "c"]) == ["a", "c"]
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    @pytest.mark.skipif(
        sys.platform == "darwin", reason="its libraries refuse a fork among threads"
    )
    def test_a_child_that_is_forked_while_it_is_closed_does_not_keep_the_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Who opens it next, opens it, however long the child lives."""
        seen = streamdedup.open(tmp_path / "seen", **CUCKOO)
        close, children = seen._journal.close, list[int]()

        def forking() -> None:
            children.append(os.fork())
            if not children[0]:
                signal.pause()
            close()

        monkeypatch.setattr(seen._journal, "close", forking)
        seen.close()
        try:
            streamdedup.open(tmp_path / "seen").close()
        finally:
            os.kill(children[0], signal.SIGKILL)
            os.waitpid(children[0], 0)
