"""What a crawl has seen on disk: nothing that was written is lost, and nothing that is damaged is believed."""

import resource
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from streamdedup import filters
from streamdedup.contrib.seen import Seen
from streamdedup.contrib.seen_log import ROWS_MAX, LogReader, LogWriter
from streamdedup.errors import SnapshotError
from streamdedup.filters.base import Addable
from streamdedup.keys.hashing import Hash
from tests.broker.base import DEADLINE_S, wait_until

HASH = Hash.draw()
KEYS = [f"key {number}" for number in range(2 * ROWS_MAX + 10)]  # three frames, if written at once


def _filter() -> Addable:
    return filters.build({"kind": "bloom", "capacity": 20_000, "error_rate": 1e-9}, Hash.draw())


def _log(path: Path, keys: list[str]) -> bytes:
    writer = LogWriter(path, HASH)
    for key in keys:
        writer.append(key)
    writer.close()
    return path.read_bytes()


def _read(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return [bytes(digest) for digests in LogReader(file).frames() for digest in digests]


def _digests(keys: list[str]) -> list[bytes]:
    return [bytes(digest) for digest in HASH.digests(keys)]


class TestLog:
    """A log gives back what was appended, up to the first byte that is missing or wrong."""

    def test_it_gives_back_its_digests(self, tmp_path: Path) -> None:
        """In order, over several frames; the file is for its owner alone."""
        path = tmp_path / "seen.log"
        _log(path, KEYS)
        assert _read(path) == _digests(KEYS)
        assert path.stat().st_mode & 0o777 == 0o600
        with path.open("rb") as file:
            assert LogReader(file).check == HASH.check

    def test_it_is_written_while_it_is_open(self, tmp_path: Path) -> None:
        """What was appended is in the file within a beat, without a call."""
        path = tmp_path / "seen.log"
        writer = LogWriter(path, HASH)
        writer.append("a")
        wait_until(
            lambda: _read(path) == _digests(["a"]), DEADLINE_S, lambda: f"it has {_read(path)}"
        )
        writer.append("b")
        wait_until(
            lambda: _read(path) == _digests(["a", "b"]), DEADLINE_S, lambda: f"it has {_read(path)}"
        )
        writer.close()

    def test_it_ends_before_what_is_cut_or_wrong(self, tmp_path: Path) -> None:
        """Whole frames before a cut or a flipped bit are read, and nothing else; in the header, nothing is."""
        path = tmp_path / "seen.log"
        whole = _log(path, KEYS)
        frame = 8 + 16 * ROWS_MAX
        header = len(whole) - 2 * frame - (8 + 16 * 10)
        inside = (header + 5, header + 7, header + frame - 1, header + frame, header + frame + 100)
        for at in (0, 1, 9, 20, header - 1, header, *inside, len(whole) - 1):
            wrong = bytearray(whole)
            wrong[at] ^= 4
            for damaged in (whole[:at], wrong):
                path.write_bytes(damaged)
                frames = max(0, at - header) // frame
                assert _read(path) == _digests(KEYS[: frames * ROWS_MAX]), at

    def test_zeros_after_a_loss_of_power_are_no_frames(self, tmp_path: Path) -> None:
        """A file system may extend a file, and lose what was written there."""
        path = tmp_path / "seen.log"
        path.write_bytes(_log(path, ["a"]) + bytes(5000))
        assert _read(path) == _digests(["a"])
        path.write_bytes(bytes(5000))
        assert _read(path) == []

    def test_a_full_disk_loses_nothing(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What the disk refuses is written once there is space; one error is logged, without a key."""
        path = tmp_path / "seen.log"
        writer = LogWriter(path, HASH)
        with _files_of_at_most(path.stat().st_size + 100):
            for key in KEYS:
                writer.append(key)
            wait_until(lambda: bool(caplog.records), DEADLINE_S, lambda: f"it has {_read(path)}")
        wait_until(
            lambda: len(_read(path)) == len(KEYS), DEADLINE_S, lambda: f"it has {_read(path)}"
        )
        writer.close()
        assert _read(path) == _digests(KEYS)
        (record,) = caplog.records
        assert "seen.log: File too large" in record.getMessage()
        assert "key 1" not in record.getMessage()


@contextmanager
def _files_of_at_most(size_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class TestSeen:
    """A directory gives back the filter with all that was appended to its log."""

    def test_a_clean_stop_leaves_the_filter_alone(self, tmp_path: Path) -> None:
        """After `save` there is no log, and the filter has the keys."""
        self._seen(tmp_path, ["a", "b"], saves=True)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "seen.filter"]
        with closing(Seen(tmp_path)) as seen:
            assert seen.exists
            assert self._in(seen.load(), ["a", "b", "c"]) == ["a", "b"]

    def test_a_log_is_added_to_its_filter(self, tmp_path: Path) -> None:
        """Without `save`, as after a kill, the log has what the filter lacks."""
        self._seen(tmp_path, ["a", "b"])
        assert self._in(self._loaded(tmp_path), ["a", "b", "c"]) == ["a", "b"]

    @pytest.mark.parametrize("kind", ["counting", "cuckoo", "exact"])
    def test_a_log_that_is_in_the_filter_does_no_harm(self, tmp_path: Path, kind: str) -> None:
        """A kill between the save and the removal of the log: no key counts twice, in multisets, too."""
        filter_ = filters.build({"kind": kind, "capacity": 100, "error_rate": 1e-4}, Hash.draw())
        self._seen(tmp_path, ["a", "b"], filter_=filter_)
        log = (tmp_path / "seen.log").read_bytes()
        seen = Seen(tmp_path)
        loaded = seen.load()
        seen.begin(loaded)
        seen.save(loaded)
        seen.close()
        (tmp_path / "seen.log").write_bytes(log)
        assert len(self._loaded(tmp_path)) == 2

    def test_a_log_of_another_filter_is_passed_over(self, tmp_path: Path) -> None:
        """A kill between a new filter and its log leaves the log of the one before, of another secret."""
        self._seen(tmp_path, ["a"])
        log = (tmp_path / "seen.log").read_bytes()
        self._seen(tmp_path, [])
        (tmp_path / "seen.log").write_bytes(log)
        assert len(self._loaded(tmp_path)) == 0

    @pytest.mark.parametrize("keep", [0, 100, -1])
    def test_a_cut_filter_is_refused(self, tmp_path: Path, keep: int) -> None:
        """By its path, with what to do; the directory can then be used again."""
        self._seen(tmp_path, ["a"], saves=True)
        path = tmp_path / "seen.filter"
        path.write_bytes(path.read_bytes()[:keep])
        for _ in range(2):
            with pytest.raises(SnapshotError, match=r"seen\.filter.*; or remove "):
                self._loaded(tmp_path)

    def test_a_filter_that_takes_no_keys_is_refused(self, tmp_path: Path) -> None:
        """As one that somebody put there."""
        from streamdedup import build, save

        save(build({"kind": "fuse", "keys": ["a"]}), tmp_path / "seen.filter")
        with pytest.raises(SnapshotError, match="holds a fuse, which takes no keys"):
            self._loaded(tmp_path)

    @staticmethod
    def _seen(
        directory: Path, keys: list[str], *, saves: bool = False, filter_: Addable | None = None
    ) -> None:
        """Begin, add the keys, and end as a clean stop does, or else as after a kill."""
        seen, filter_ = Seen(directory), filter_ or _filter()
        append = seen.begin(filter_)
        for key in keys:
            filter_.add(key)
            append(key)
        if saves:
            seen.save(filter_)
        seen.close()

    @staticmethod
    def _loaded(directory: Path) -> Addable:
        with closing(Seen(directory)) as seen:
            return seen.load()

    @staticmethod
    def _in(filter_: Addable, keys: list[str]) -> list[str]:
        return [key for key in keys if key in filter_]

    def test_a_directory_that_cannot_be_made_is_refused(self, tmp_path: Path) -> None:
        """The message names it, and what to do."""
        (tmp_path / "file").touch()
        for directory in (tmp_path / "file", tmp_path / "file" / "streamdedup"):
            with pytest.raises(SnapshotError, match=r"^cannot write .*file.*lock: .*; see "):
                Seen(directory)

    @pytest.mark.parametrize("name", ["seen.log", "lock"])
    def test_a_link_is_not_followed(self, tmp_path: Path, name: str) -> None:
        """Whoever may write to the directory would have another file of this user's cut short, or read."""
        victim = tmp_path / "victim"
        victim.write_text("precious")
        place = tmp_path / "seen"
        self._seen(place, ["a"])
        (place / name).unlink(missing_ok=True)
        (place / name).symlink_to(victim)
        with pytest.raises(SnapshotError, match="ELOOP"):
            self._loaded(place)
        with ExitStack() as stack, pytest.raises(SnapshotError, match="ELOOP"):
            stack.enter_context(closing(Seen(place))).begin(_filter())
        assert victim.read_text() == "precious"

    @pytest.mark.usefixtures("no_umask")
    def test_directories_are_for_their_owner(self, tmp_path: Path) -> None:
        """All that are made, and the files in them, whatever the umask leaves."""
        self._seen(tmp_path / "a" / "b", ["a"])
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
        of_files = dict.fromkeys(("lock", "seen.log", "seen.filter"), 0o600)
        assert modes == {"a": 0o700, "b": 0o700, **of_files}
