"""Options of `lists check`, wherever they stand."""

import pytest

from tests.lists.tools import Commands, built


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_keys_in_utf_16_are_refused(encoding: str, lists: Commands) -> None:
    """None of them could match."""
    built(lists.directory, ["a", "b"])
    said = lists("check", "out.list", stdin="\ufeffa\nb\n".encode(encoding))
    assert (said.status, said.out) == (2, b"")
    assert "the input is UTF-16; convert it first" in said.errors


def test_options_stand_anywhere(lists: Commands) -> None:
    """Before, between and after files and keys, in every command of lists. What is no option is still reported."""
    built(lists.directory, ["a"])
    for name in ("one", "two"):
        (lists.directory / f"{name}.txt").write_text(f"{name}\n")
    assert lists("build", "one.txt", "--output", "made.list", "two.txt").status == 0
    said = lists("check", "made.list", "one", "--allow", "out.list", "two", "--", "--three")
    assert said.out == b"blocked\taddress\tone\nblocked\taddress\ttwo\npass\t-\t--three\n"
    with pytest.raises(SystemExit):
        lists("check", "made.list", "one", "--not-there", "two")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--", "out.list", "-key", "a"),
        ("--allow", "out.list", "--", "out.list", "-key", "a"),
        ("out.list", "--", "-key", "a"),
        ("out.list", "-", "--", "--allow", "a"),
    ],
)
def test_what_follows_two_dashes_is_no_option(arguments: tuple[str, ...], lists: Commands) -> None:
    """Whatever stands before them, also the list itself."""
    built(lists.directory, ["a"])
    keys = [key for key in arguments[arguments.index("--") :] if key not in ("--", "out.list")]
    said = lists("check", *arguments)
    assert said.status == 0
    found = [line.rpartition("\t")[2] for line in said.out.decode().splitlines()]
    assert found[-2:] == keys
