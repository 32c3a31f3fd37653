"""RocksDB, by the package rocksdict of the extra `exact`: imported where a store is built or asked, and only here.

Its errors have no type of their own; they become SnapshotErrors that name the store and what to do.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from streamdedup.errors import ConfigError, SnapshotError, StreamdedupError
from streamdedup.snapshot.files import words

CACHE_BYTES = 32 << 20  # of blocks, for each store that is open
BLOCK_BYTES = 4 << 10  # what is read for a key
ERROR_CHARS_MAX = 300


def rocksdict() -> ModuleType:
    """The package; ConfigError where it is not there."""
    try:
        import rocksdict
    except ImportError:
        raise ConfigError(
            "the exact store of a list needs the package rocksdict, which is not installed;"
            " pip install 'streamdedup-kafka[exact]'"
        ) from None
    return rocksdict


@contextmanager
def rocks_errors(doing: str, path: Path, remedy: str) -> Iterator[None]:
    """Turn an error of RocksDB, which holds no key but paths and numbers, into a SnapshotError."""
    try:
        yield
    except StreamdedupError:
        raise
    except Exception as error:
        raise SnapshotError(
            f"cannot {doing} {path}: {str(error)[:ERROR_CHARS_MAX]}; {remedy}"
        ) from None


def table_options() -> Any:  # noqa: ANN401 - rocksdict may not be there
    """How keys of 16 bytes without values are kept, and read one by one."""
    rocks = rocksdict()
    blocks = rocks.BlockBasedOptions()
    blocks.set_block_size(BLOCK_BYTES)
    blocks.set_block_cache(rocks.Cache(CACHE_BYTES))
    options = rocks.Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(rocks.DBCompressionType.none())  # digests do not compress
    options.set_max_open_files(-1)  # all are open from the start: they may be removed meanwhile
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_keep_log_file_num(1)
    return options


def opened(directory: Path, names: Sequence[str]) -> Any:  # noqa: ANN401 - rocksdict may not be there
    """RocksDB over the files `names` of `directory`, to be read only. Nothing is written there, nor made anew.

    RocksDB logs into the directory that it opens, and rocksdict writes its own options there, also where both only
    read: so they are given one of links, which is gone again once all files are open.
    """
    rocks = rocksdict()
    try:
        view = TemporaryDirectory(prefix="streamdedup-")
    except OSError as error:
        raise SnapshotError(
            f"cannot open {directory}: a directory for temporary files is needed ({words(error)}); name one that may be"
            " written to by TMPDIR"
        ) from None
    with view as name:
        for each in names:
            (Path(name) / each).symlink_to((directory / each).absolute())
        access = rocks.AccessType.read_only()
        return rocks.Rdict(name, table_options(), access_type=access)
