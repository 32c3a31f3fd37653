"""A deployment on a real broker that screens addresses by a block list, and the commands that change the list."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from streamdedup.cli import main
from streamdedup.lists import load
from tests.broker.base import Broker
from tests.broker.topics import Record, create_topic, read_all, unique_name
from tests.deployment import Deployment


def build(path: Path, entries: Sequence[str], *arguments: str) -> str:
    """Build the list at `path` by the command, in this process: another takes ten times as long; its version."""
    text = path.with_suffix(".txt")
    text.write_text("\n".join(entries), "utf-8")
    made = ["lists", "build", str(text), "-o", str(path), "--normalize", "email", *arguments]
    assert main(made) == 0
    return load(path, verify=False).version


def command(arguments: Sequence[str]) -> None:
    """Run `streamdedup` in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "streamdedup", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.fixture
def screened(broker: Broker, tmp_path: Path) -> Deployment:
    """Two partitions of addresses, no filter, a control topic, a topic for what is blocked; no list is built yet."""
    made = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    made.config["key"] = {"from": "value", "normalize": "email"}
    made.config["filter"] = {"kind": "none"}
    del made.config["snapshot"]
    control = unique_name("control")
    create_topic(made.bootstrap, control, 3, cleanup_policy="compact")
    made.config["blocklist"] = {"file": str(tmp_path / "block.list"), "control_topic": control}
    made.create_side_topic("blocked_topic")
    return made


def blocked(deployment: Deployment) -> list[Record]:
    """What stands in the topic of blocked events."""
    return read_all(deployment.bootstrap, deployment.config["sink"]["blocked_topic"])


def header(record: Record, name: str) -> str:
    """What a letter says."""
    return (dict(record.headers)[f"streamdedup.{name}"] or b"").decode()
