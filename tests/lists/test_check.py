"""Claims about `lists check` and `lists inspect`: what a worker would do to a key, and what a file is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker.base import DEADLINE_S
from tests.filters.cases import HASH_KEY
from tests.lists.tools import HASHES, PROVIDER, STRICT, Commands, built


def allowed(directory: Path, *entries: str, **given: object) -> Path:
    """Build a list that exempts, beside the other."""
    (directory / "allow").mkdir()
    built(directory / "allow", entries, **given)
    return directory / "allow" / "out.list"


def test_each_key_has_its_verdict_and_rule(lists: Commands) -> None:
    """By tabs, the key as it was given, in the order in which they came."""
    built(lists.directory, ["a@x.com", "b@x.com", ".y.com"], normalizing=PROVIDER)
    allow = allowed(lists.directory, "b@x.com", "@ok.y.com", normalizing=PROVIDER)
    keys = ["A@X.com", "b+tag@x.com", "c@x.com", "d@y.com", "e@ok.y.com", "e@z.y.com", "nobody"]
    said = lists("check", "--allow", allow, "out.list", *keys)
    assert said.status == 0
    assert "by the file alone; the single changes are asked with --live -c CONFIG" in said.errors
    assert said.out.decode().splitlines() == [
        "blocked\taddress\tA@X.com",
        "pass\t-\tb+tag@x.com",
        "pass\t-\tc@x.com",
        "blocked\tdomain\td@y.com",
        "pass\tallowlist\te@ok.y.com",
        "blocked\tdomain\te@z.y.com",
        "malformed\tthe key is not an e-mail address: An email address must have an @-sign\tnobody",
    ]


@pytest.mark.parametrize("arguments", [(), ("-",)], ids=["none", "-"])
def test_keys_come_from_standard_input(arguments: tuple[str, ...], lists: Commands) -> None:
    """One line a line, whatever it holds: blank lines, comments and bytes that are no text, too."""
    built(lists.directory, ["a", "b"])
    said = lists("check", "out.list", *arguments, stdin=b"a\r\n\n# c\n\xff\nb")
    assert said.out == (
        b"blocked\taddress\ta\npass\t-\t\npass\t-\t# c\npass\t-\t\xff\nblocked\taddress\tb\n"
    )


@pytest.mark.parametrize("beyond", [1, 2, 1 << 20])
def test_a_line_that_is_too_long_is_malformed(beyond: int, lists: Commands) -> None:
    """It is cut, so there is no verdict; one as long as it may be has one."""
    built(lists.directory, ["a"])
    longest = b"x" * (1 << 20)
    said = lists("check", "out.list", stdin=longest + beyond * b"y" + b"\n" + longest + b"\na\n")
    reason = b"malformed\tthe line is longer than 1,048,576 bytes\t"
    assert said.out == reason + longest + b"\npass\t-\t" + longest + b"\nblocked\taddress\ta\n"


def test_a_key_may_be_any_bytes(lists: Commands) -> None:
    """An argument that is no text is asked for as it is."""
    built(lists.directory, ["a"])
    said = lists("check", "out.list", os.fsdecode(b"\xff"), "a")
    assert said.out == b"pass\t-\t\xff\nblocked\taddress\ta\n"


def test_an_answer_comes_as_soon_as_its_line(tmp_path: Path) -> None:
    """So that a person, or a program, can ask one key after the other."""
    built(tmp_path, ["a"])
    with subprocess.Popen(
        [sys.executable, "-m", "streamdedup", "lists", "check", "out.list"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as asked:
        assert asked.stdin is not None
        assert asked.stdout is not None
        for key, verdict in ((b"a", b"blocked\taddress\ta\n"), (b"b", b"pass\t-\tb\n")):
            asked.stdin.write(key + b"\n")
            asked.stdin.flush()
            assert asked.stdout.readline() == verdict
        asked.stdin.close()
        assert asked.wait(DEADLINE_S) == 0


def test_a_keyed_list_wants_its_secret(lists: Commands) -> None:
    """From a file, as for the build; the message names the option."""
    built(lists.directory, ["a"], hash=HASHES["siphash"])
    (lists.directory / "key").write_text(HASH_KEY.hex())
    for arguments in (("a", "--hash-key-file", "key"), ("--hash-key-file", "key", "a")):
        assert lists("check", "out.list", *arguments).out == b"blocked\taddress\ta\n"
    said = lists("check", "out.list", "a")
    assert said.status == 2
    how = (
        "give the worker's configuration (-c my.yaml), or the file of the secret (--hash-key-file)"
    )
    assert f"cannot use out.list: its hash is siphash under a secret: {how}\n" in said.errors
    (lists.directory / "other").write_text("00" * 16)
    said = lists("check", "out.list", "a", "--hash-key-file", "other")
    assert said.status == 2
    assert f"under another secret than that of --hash-key-file: {how}\n" in said.errors
    built(lists.directory, ["a"])
    said = lists("check", "out.list", "a", "--hash-key-file", "key")
    assert said.status == 2
    assert "its hash is murmur3, which has no secret: leave out --hash-key-file\n" in said.errors


def test_by_a_configuration_the_remedy_names_its_options(lists: Commands) -> None:
    """A list of another hash is not to be asked without the secret, but to be built with it."""
    built(lists.directory, ["a"])
    (lists.directory / "key").write_text(HASH_KEY.hex())
    (lists.directory / "my.yaml").write_text(
        "{kafka: {bootstrap_servers: 'b:1', group_id: g}, source: {topic: i}, key: {field: id}, sink: {topic: o},"
        " filter: {capacity: 1000, hash_key_file: key}, snapshot: {directory: s}}"
    )
    said = lists("check", "out.list", "a", "-c", "my.yaml")
    assert said.status == 2
    assert (
        "out.list was built with murmur3, and this worker has filter.hash_key_file: b"
        in said.errors
    )
    assert "leave it out" not in said.errors


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "cannot be read from key, which is empty"),
        (b"secret", "; key holds something else"),
        (b"\xff" * 32, "cannot be read from key as UTF-8"),
    ],
    ids=["empty", "short", "bytes"],
)
def test_a_secret_that_is_none_is_refused_and_not_shown(
    data: bytes, said: str, lists: Commands, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The message names the file."""
    (lists.directory / "key").write_bytes(data)
    with pytest.raises(SystemExit, match="2"):
        lists("check", "x.list", "a", "--hash-key-file", "key")
    errors = capsysbinary.readouterr().err.decode()
    assert "argument --hash-key-file: " in errors
    assert said in errors
    assert "secret" not in errors


def test_two_lists_that_read_keys_in_two_ways_are_refused(lists: Commands) -> None:
    """As a worker refuses them: the same key would be two."""
    built(lists.directory, ["a@x.com"], normalizing=PROVIDER)
    allow = allowed(lists.directory, "a@x.com", normalizing=STRICT)
    said = lists("check", "out.list", "a@x.com", "--allow", allow)
    assert said.status == 2
    assert f"the list {allow} holds keys normalized by" in said.errors


@pytest.mark.parametrize("part", ["check", "inspect"])
def test_what_is_no_list_is_refused(part: str, lists: Commands) -> None:
    """By name, with what to do; a damaged one is not asked."""
    for data, status in ((b"a@x.com\n", 1), (b"", 1)):
        (lists.directory / "in.txt").write_bytes(data)
        said = lists(part, "in.txt")
        assert said.status == status
        assert "cannot use in.txt" in said.errors
    assert lists(part, "nowhere").status == 1


def test_the_help_says_what_the_exit_status_means(
    lists: Commands, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """It is no grep: that nothing was blocked is no failure."""
    with pytest.raises(SystemExit, match="0"):
        lists("check", "--help")
    assert b"exit status reports errors only" in b" ".join(capsysbinary.readouterr().out.split())


def test_inspect_tells_all_of_the_header(lists: Commands) -> None:
    """For a person; without the secret of a keyed hash."""
    entries = ["a@x.com", "A@x.com", "nobody", "@y.com"]
    listed = built(lists.directory, entries, normalizing=PROVIDER, hash=HASHES["siphash"])
    said = lists("inspect", "out.list")
    assert said.status == 0
    rows = dict(line.split(maxsplit=1) for line in said.out.decode().splitlines())
    assert rows["name"] == "bad"
    assert rows["version"] == listed.version
    assert rows["built"].startswith("at     2026-11-22 15:08:34 UTC, by streamdedup")
    assert rows["normalizer"] == PROVIDER.id
    assert rows["hash"] == "siphash"
    assert rows["kind"] == "fuse, error rate 9.54e-07"
    assert (rows["addresses"], rows["domains"]) == ("1", "1")
    assert rows["left"] == "out     1 duplicate, 1 bad line"
    assert "of addresses, and" in rows["size"]
    assert rows["checksums"] == "hold"


def test_inspect_says_when_checksums_do_not_hold(lists: Commands) -> None:
    """With status 1, and with what the header says all the same."""
    built(lists.directory, ["a"])
    path = lists.directory / "out.list"
    data = bytearray(path.read_bytes())
    data[4096] ^= 1
    path.write_bytes(data)
    said = lists("inspect", "out.list")
    assert said.status == 1
    assert "name         bad\n" in said.out.decode()
    assert "checksums    DO NOT HOLD: chunk 0 of " in said.out.decode()
