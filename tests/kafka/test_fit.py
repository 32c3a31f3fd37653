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
from tests.rows import every

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
REASONS: dict[str, tuple[str, Change]] = {
    "another version": (
        "it is not one of the versions 0.14.x",
        replaced(aiokafka, "__version__", "0.15.0"),
    ),
    "a longer version": (
        "it is not one of the versions 0.14.x",
        replaced(aiokafka, "__version__", "0.140.0"),
    ),
    "no records": (
        "PartitionRecords is missing, or of another kind",
        without(fetcher, "PartitionRecords"),
    ),
    "records that are no class": (
        "PartitionRecords is missing, or of another kind",
        replaced(fetcher, "PartitionRecords", other),
    ),
    "records of other arguments": (
        "PartitionRecords takes other arguments",
        replaced(fetcher, "PartitionRecords", OtherArguments),
    ),
    "records of other names": (
        "PartitionRecords lacks a name",
        replaced(fetcher, "PartitionRecords", OtherNames),
    ),
    "no transactions in records": (
        "PartitionRecords lacks a name",
        without(fetcher.PartitionRecords, "_consume_aborted_up_to"),
    ),
    "no fetch": (
        "Fetcher._proc_fetch_request is missing, or of another kind",
        without(fetcher.Fetcher, "_proc_fetch_request"),
    ),
    "no fetcher": (
        "Fetcher._proc_fetch_request is missing, or of another kind",
        without(fetcher, "Fetcher"),
    ),
    "a fetch that is a closure": (
        "Fetcher._proc_fetch_request is missing, or of another kind",
        replaced(fetcher.Fetcher, "_proc_fetch_request", closure(*FETCHING)),
    ),
    "a fetch by other names": (
        "Fetcher._proc_fetch_request uses other names",
        replaced(fetcher.Fetcher, "_proc_fetch_request", other),
    ),
    "no reason of a close": ("CloseReason is missing", without(conn, "CloseReason")),
    "no connections": (
        "AIOKafkaClient._get_conn is missing, or of another kind",
        without(AIOKafkaClient, "_get_conn"),
    ),
    "a close by other names": (
        "AIOKafkaConnection.close uses other names",
        replaced(AIOKafkaConnection, "close", other),
    ),
    "a connect by other names": (
        "AIOKafkaConnection.connect uses other names",
        replaced(AIOKafkaConnection, "connect", other),
    ),
    "no frames": (
        "AIOKafkaConnection._handle_frame is missing, or of another kind",
        without(AIOKafkaConnection, "_handle_frame"),
    ),
    "frames by a closure": (
        "AIOKafkaConnection._handle_frame is missing, or of another kind",
        replaced(AIOKafkaConnection, "_handle_frame", closure("io", "BytesIO")),
    ),
    "frames by other names": (
        "AIOKafkaConnection._handle_frame uses other names",
        replaced(AIOKafkaConnection, "_handle_frame", other),
    ),
    "no update of topics": (
        "AIOKafkaClient._metadata_update is missing, or of another kind",
        replaced(AIOKafkaClient, "_metadata_update", None),
    ),
    "an update by a closure": (
        "AIOKafkaClient._metadata_update is missing, or of another kind",
        replaced(AIOKafkaClient, "_metadata_update", closure("MetadataRequest")),
    ),
    "an update by other names": (
        "AIOKafkaClient._metadata_update uses other names",
        replaced(AIOKafkaClient, "_metadata_update", other),
    ),
    "topics that brokers create": (
        "MetadataRequest has no allow_auto_topic_creation",
        replaced(fit, "MetadataRequest", metadata.MetadataRequest_v0),
    ),
}


def test_each_reason_is_told() -> None:
    """The installed aiokafka fits; one that is changed in one place does not, and the error names the place."""
    fit.check()

    def told(what: str) -> None:
        reason, change = REASONS[what]
        with pytest.MonkeyPatch.context() as patch:
            change(patch)
            assert fit.unfit() == reason
            with pytest.raises(ConfigError) as error:
                fit.check()
        assert f"does not fit: {reason}; install one" in str(error.value)

    every(REASONS, told)


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
