"""RocksDB, through the package rocksdict of the extra `exact`. Only this module imports it, once a store is used.

RocksDB's errors have no type of their own. They become SnapshotErrors that name the store and the remedy.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from streamdedup.errors import ConfigError, SnapshotError, StreamdedupError
from streamdedup.snapshot.files import words

CACHE_BYTES = 32 << 20  # cached blocks of each open store
BLOCK_BYTES = 4 << 10  # a look-up of one key reads one block
ERROR_CHARS_MAX = 300


def rocksdict() -> ModuleType:
    """Return the package. ConfigError if it is not installed."""
    try:
        import rocksdict
    except ImportError:
        raise ConfigError(
            "the exact store of a list needs the package rocksdict, which is not installed; run:"
            " pip install 'streamdedup-kafka[exact]'"
        ) from None
    return rocksdict


@contextmanager
def rocks_errors(doing: str, path: Path, remedy: str) -> Iterator[None]:
    """Turn an error of RocksDB into a SnapshotError. Its text holds paths and numbers, and no key."""
    try:
        yield
    except StreamdedupError:
        raise
    except Exception as error:
        raise SnapshotError(
            f"cannot {doing} {path}: {str(error)[:ERROR_CHARS_MAX]}; {remedy}"
        ) from None


def table_options() -> Any:  # noqa: ANN401 - rocksdict may not be installed
    """Return the options for keys of 16 bytes without values that are looked up one by one."""
    rocks = rocksdict()
    blocks = rocks.BlockBasedOptions()
    blocks.set_block_size(BLOCK_BYTES)
    blocks.set_block_cache(rocks.Cache(CACHE_BYTES))
    options = rocks.Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(rocks.DBCompressionType.none())  # digests do not compress
    options.set_max_open_files(-1)  # open all from the start, because they may be removed meanwhile
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_keep_log_file_num(1)
    return options


def opened(directory: Path, names: Sequence[str]) -> Any:  # noqa: ANN401 - rocksdict may not be installed
    """Open the RocksDB files `names` of `directory`, read-only, without writing there.

    Even for reading, RocksDB logs into the directory that it opens, and rocksdict writes its options there. So they get
    a temporary directory of links, which is removed once all files are open.
    """
    rocks = rocksdict()
    try:
        view = TemporaryDirectory(prefix="streamdedup-")
    except OSError as error:
        raise SnapshotError(
            f"cannot open {directory}: a directory for temporary files is needed ({words(error)}); set TMPDIR to a"
            " directory that can be written to"
        ) from None
    with view as name:
        for each in names:
            (Path(name) / each).symlink_to((directory / each).absolute())
        access = rocks.AccessType.read_only()
        return rocks.Rdict(name, table_options(), access_type=access)
