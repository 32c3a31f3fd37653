"""The walk-through of docs/blacklist.md, typed as it stands there, against a real broker."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.broker.base import DEADLINE_S, Broker, admin_client, wait_until
from tests.broker.topics import create_topic, produce, read_all, unique_name
from tests.deployment import drained

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "blacklist.md"
TOPICS = ("sign-ups", "sign-ups-list", "sign-ups-clean", "sign-ups-blocked", "sign-ups-malformed")


def commands(document: Path = DOCUMENT) -> list[str]:
    """The lines of the blocks that are said to be run against a broker, in their order."""
    text = document.read_text("utf-8")
    blocks = re.findall(r"<!-- not run: \S+ runs it, .*? -->\n```sh\n(.*?)```", text, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_the_walk_through(broker: Broker, tmp_path: Path) -> None:
    """Each command succeeds, the worker screens as it says, and the changes reach it while it runs."""
    bootstrap, suffix = broker.bootstrap_servers, unique_name("")
    config = (ROOT / "config" / "blocklist.yaml").read_text("utf-8")
    for name in sorted(
        TOPICS, key=len, reverse=True
    ):  # topics of its own, in a broker that others use
        config = re.sub(rf"topic: {name}\b(?!-)", f"topic: {name}{suffix}", config)
    config = config.replace("localhost:9092", bootstrap).replace(
        ": blocklist ", f": blocklist{suffix} "
    )
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "blocklist.yaml").write_text(config, "utf-8")
    create_topic(bootstrap, f"sign-ups{suffix}", 2)
    create_topic(bootstrap, f"sign-ups-list{suffix}", 1, cleanup_policy="compact")
    passing, blocked = (
        ["ham@example.com", "postmaster@example.org"],
        ["Spam@example.com", "a@b.example.net"],
    )
    feed(bootstrap, f"sign-ups{suffix}", [*passing, *blocked, "nobody"])

    environ = {**os.environ, "PATH": f"{bin_directory(tmp_path)}:{os.environ['PATH']}"}
    lines = commands()
    at = lines.index("streamdedup run -c my.yaml")
    for line in lines[:at]:
        subprocess.run(line, shell=True, check=True, cwd=tmp_path, env=environ)  # noqa: S602
    with drained(subprocess.Popen(lines[at].split(), cwd=tmp_path, env=environ)):
        awaited(bootstrap, f"sign-ups-clean{suffix}", passing)
        awaited(bootstrap, f"sign-ups-blocked{suffix}", blocked)
        awaited(bootstrap, f"sign-ups-malformed{suffix}", ["nobody"])
        said = ""
        for line in lines[at + 1 :]:
            ran = subprocess.run(  # noqa: S602
                line, shell=True, check=True, cwd=tmp_path, env=environ, stdout=subprocess.PIPE
            )
            said += ran.stdout.decode()
        assert "pass\tremoved\tchange\tspam@example.com\n" in said
        assert "blocked\taddress\tchange\tnew@example.com\n" in said
        assert (
            len(re.findall(r"^0/\d+\tadd\t.*\tanna\t20.*Z\treported twice$", said, re.MULTILINE))
            == 2
        )
        assert "\ndomain\t@new.example\tchange\n" in said
        followed(bootstrap, suffix)


def followed(bootstrap: str, suffix: str) -> None:
    """Wait until what was removed passes; what was added is blocked then, too."""

    def passes() -> bool:
        feed(bootstrap, f"sign-ups{suffix}", ["spam@example.com"])
        return b'{"email": "spam@example.com"}' in values(bootstrap, f"sign-ups-clean{suffix}")

    wait_until(passes, DEADLINE_S, lambda: "spam@example.com is still blocked")
    feed(bootstrap, f"sign-ups{suffix}", ["new@example.com", "a@new.example"])
    wait_until(
        lambda: (
            {b'{"email": "new@example.com"}', b'{"email": "a@new.example"}'}
            <= set(values(bootstrap, f"sign-ups-blocked{suffix}"))
        ),
        DEADLINE_S,
        lambda: "what was added is not blocked",
    )


def feed(bootstrap: str, topic: str, addresses: list[str]) -> None:
    """A sign-up of each."""
    produce(
        bootstrap, topic, [(0, None, b'{"email": "%b"}' % a.encode(), [], None) for a in addresses]
    )


def values(bootstrap: str, topic: str) -> list[bytes]:
    """What stands in a topic, which the worker may still have to create."""
    if topic not in admin_client(bootstrap).list_topics(timeout=DEADLINE_S).topics:
        return []
    return [record.value or b"" for record in read_all(bootstrap, topic)]


def awaited(bootstrap: str, topic: str, texts: list[str], field: str = "email") -> None:
    """Wait until these sign-ups, or other events with a text in that field, and no others are in `topic`."""
    wanted = sorted(json.dumps({field: text}).encode() for text in texts)
    wait_until(
        lambda: sorted(values(bootstrap, topic)) == wanted,
        DEADLINE_S,
        lambda: f"{topic} has {len(values(bootstrap, topic))} events, not {len(wanted)}",
    )


def bin_directory(tmp_path: Path) -> Path:
    """A directory with the command `streamdedup` of this very source."""
    directory = tmp_path / "bin"
    directory.mkdir()
    command = directory / "streamdedup"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m streamdedup "$@"\n')
    command.chmod(0o755)
    return directory
