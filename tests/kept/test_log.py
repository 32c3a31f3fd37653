"""A log gives back what was written, up to the first byte that is missing or wrong."""

from pathlib import Path

import numpy as np

from streamdedup.kept.log import (
    ADDED,
    CLEARED,
    HEADER_BYTES,
    REMOVED,
    Label,
    LogReader,
    LogWriter,
    Rows,
)

LABEL = Label(7, "ab" * 16, 2)
Frames = list[tuple[int, list[list[int]]]]


def _rows(first: int, count: int) -> Rows:
    return np.arange(first, first + 2 * count, dtype=np.uint64).reshape(-1, 2)


CHANGES = [
    (ADDED, _rows(0, 3)),
    (REMOVED, _rows(2, 1)),
    (CLEARED, _rows(0, 0)),
    (ADDED, _rows(50, 4)),
]
FRAME_BYTES = [12 + 16 * len(rows) for _, rows in CHANGES]


def _told(changes: list[tuple[int, Rows]]) -> Frames:
    return [(what, rows.tolist()) for what, rows in changes]


def _written(path: Path, changes: list[tuple[int, Rows]], label: Label = LABEL) -> bytes:
    writer = LogWriter(path, label)
    for what, rows in changes:
        writer.write(writer.frame(what, rows))
    writer.close()
    return path.read_bytes()


def _read(path: Path) -> Frames:
    with path.open("rb") as file:
        return _told(list(LogReader(file).frames()))


def test_it_gives_back_what_was_written(tmp_path: Path) -> None:
    """In order, with what was done; its label is that of the writer, and the file is for its owner alone."""
    path = tmp_path / "log"
    _written(path, CHANGES)
    assert _read(path) == _told(CHANGES)
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("rb") as file:
        assert LogReader(file).label == LABEL


def test_it_ends_before_what_is_cut_or_wrong(tmp_path: Path) -> None:
    """Whole frames before a cut or a flipped bit are read, and nothing else; in the header, nothing is."""
    path = tmp_path / "log"
    whole = _written(path, CHANGES)
    ends = HEADER_BYTES + np.cumsum([0, *FRAME_BYTES])
    assert ends[-1] == len(whole)
    for at in range(len(whole)):
        wrong = bytearray(whole)
        wrong[at] ^= 4
        frames = max(0, int(np.searchsorted(ends, at, side="right")) - 1)
        for damaged in (whole[:at], wrong):
            path.write_bytes(damaged)
            assert _read(path) == _told(CHANGES[:frames]), at


def test_zeros_after_a_loss_of_power_are_no_frames(tmp_path: Path) -> None:
    """A file system may extend a file, and lose what was written there."""
    path = tmp_path / "log"
    path.write_bytes(_written(path, CHANGES) + bytes(5000))
    assert _read(path) == _told(CHANGES)
    path.write_bytes(bytes(5000))
    assert _read(path) == []


def test_it_goes_on_where_its_whole_frames_end(tmp_path: Path) -> None:
    """What is not whole is cut off, so that what follows can be read; a new log replaces one that is there."""
    path = tmp_path / "log"
    path.write_bytes(_written(path, CHANGES[:2])[:-3])
    with path.open("rb") as file:
        read = LogReader(file)
        list(read.frames())
    writer = LogWriter(path, LABEL, read)
    writer.write(writer.frame(*CHANGES[3]))
    writer.close()
    assert _read(path) == _told([CHANGES[0], CHANGES[3]])
    _written(path, CHANGES)
    _written(path, CHANGES[:1])
    assert _read(path) == _told(CHANGES[:1])


def test_a_frame_of_another_log_is_none(tmp_path: Path) -> None:
    """As where a disk gives back an old block: a frame belongs to its number, and to the label of its log."""
    path = tmp_path / "log"
    first = _written(path, CHANGES[:1])
    other = _written(path, CHANGES[:1], Label(8, LABEL.check, 2))
    path.write_bytes(first + other[HEADER_BYTES:])
    assert _read(path) == _told(CHANGES[:1])
    path.write_bytes(first + first[HEADER_BYTES:])
    assert _read(path) == _told(CHANGES[:1])
