"""Claims about the one check of aiokafka: it tells why an aiokafka does not fit, and ends the process by name."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import aiokafka
import pytest
from aiokafka import conn
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer import fetcher
from aiokafka.protocol import metadata

from streamdedup.errors import ConfigError
from streamdedup.kafka.client import fit
from tests.rows import table

Change = Callable[[pytest.MonkeyPatch], None]


class OtherArguments:
    """In place of `PartitionRecords`."""


# The arguments of `PartitionRecords`, and nothing else of it.
OtherNames = type("OtherNames", (), {"__init__": fetcher.PartitionRecords.__init__})


async def other(_self: object) -> None:
    """In place of a method: it uses no name of aiokafka's."""


def closure(*uses: str) -> Any:
    """Return a method that uses these names, and is a closure."""
    given = object()
    program = f"def made(given):\n  async def method(self):\n    return given, {', '.join(uses)}\n  return method"
    names: dict[str, Any] = {}
    exec(program, names)  # noqa: S102 - the names are those below
    return names["made"](given)


def replaced(owner: Any, name: str, by: Any) -> Change:
    """Return the change to an aiokafka that has `by` in the place of a name."""
    return lambda patch: patch.setattr(owner, name, by)


def without(owner: Any, name: str) -> Change:
    """Return the change to an aiokafka that lacks a name."""
    return lambda patch: patch.delattr(owner, name)


FETCHING = ("PartitionRecords", "MemoryRecords", "has_next", "size_in_bytes")
MISSING = "is missing, or of another kind"
VERSION = "it is not one of the versions 0.14.x"
FETCH = "Fetcher._proc_fetch_request"
FRAMES = "AIOKafkaConnection._handle_frame"
UPDATE = "AIOKafkaClient._metadata_update"
REASONS: list[tuple[str, Change]] = [
    (VERSION, replaced(aiokafka, "__version__", "0.15.0")),
    (VERSION, replaced(aiokafka, "__version__", "0.140.0")),
    (f"PartitionRecords {MISSING}", without(fetcher, "PartitionRecords")),
    (f"PartitionRecords {MISSING}", replaced(fetcher, "PartitionRecords", other)),
    (
        "PartitionRecords takes other arguments",
        replaced(fetcher, "PartitionRecords", OtherArguments),
    ),
    ("PartitionRecords lacks a name", replaced(fetcher, "PartitionRecords", OtherNames)),
    ("PartitionRecords lacks a name", without(fetcher.PartitionRecords, "_consume_aborted_up_to")),
    (f"{FETCH} {MISSING}", without(fetcher.Fetcher, "_proc_fetch_request")),
    (f"{FETCH} {MISSING}", without(fetcher, "Fetcher")),
    (f"{FETCH} {MISSING}", replaced(fetcher.Fetcher, "_proc_fetch_request", closure(*FETCHING))),
    (f"{FETCH} uses other names", replaced(fetcher.Fetcher, "_proc_fetch_request", other)),
    ("CloseReason is missing", without(conn, "CloseReason")),
    (f"AIOKafkaClient._get_conn {MISSING}", without(AIOKafkaClient, "_get_conn")),
    ("AIOKafkaConnection.close uses other names", replaced(AIOKafkaConnection, "close", other)),
    ("AIOKafkaConnection.connect uses other names", replaced(AIOKafkaConnection, "connect", other)),
    (f"{FRAMES} {MISSING}", without(AIOKafkaConnection, "_handle_frame")),
    (
        f"{FRAMES} {MISSING}",
        replaced(AIOKafkaConnection, "_handle_frame", closure("io", "BytesIO")),
    ),
    (f"{FRAMES} uses other names", replaced(AIOKafkaConnection, "_handle_frame", other)),
    (f"{UPDATE} {MISSING}", replaced(AIOKafkaClient, "_metadata_update", None)),
    (
        f"{UPDATE} {MISSING}",
        replaced(AIOKafkaClient, "_metadata_update", closure("MetadataRequest")),
    ),
    (f"{UPDATE} uses other names", replaced(AIOKafkaClient, "_metadata_update", other)),
    (
        "MetadataRequest has no allow_auto_topic_creation",  # brokers would create topics
        replaced(fit, "MetadataRequest", metadata.MetadataRequest_v0),
    ),
]


@table(REASONS)
def test_each_reason_is_told(reason: str, change: Change) -> None:
    """The installed aiokafka fits; one that is changed in one place does not, and the error names the place."""
    fit.check()
    with pytest.MonkeyPatch.context() as patch:
        change(patch)
        assert fit.unfit() == reason
        with pytest.raises(ConfigError) as error:
            fit.check()
    assert f"does not fit: {reason}; install one" in str(error.value)


def test_an_aiokafka_of_another_version_ends_the_process() -> None:
    """By name, before any configuration is read, with status 2; not by the traceback of an import that fails."""
    program = (
        "import aiokafka; aiokafka.__version__ = '0.15.0'\n"
        "import aiokafka.conn; del aiokafka.conn.CloseReason\n"
        "from streamdedup.cli import main; raise SystemExit(main(['run']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "streamdedup: aiokafka 0.15.0 does not fit: it is not one of the versions 0.14.x; install one that this version"
        " of streamdedup was made for: pip install 'aiokafka==0.14.*'\n"
    )
