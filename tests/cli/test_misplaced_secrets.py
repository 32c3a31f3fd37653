"""A secret in the place of an argument is not repeated by the message that refuses the command line."""

import io
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from streamdedup.cli import main
from tests.rows import every

SECRET = "hunter2"  # noqa: S105 - the one that these tests look for
WRONG = [
    [SECRET],
    ["run", SECRET],
    ["run", "--password", SECRET],
    ["run", f"--password={SECRET}"],
    ["run", f"--{SECRET}"],
    ["run", "--set", SECRET],
    ["run", f"-x{SECRET}"],
    ["config", SECRET],
    ["config", "check", SECRET],
    ["try", SECRET],
    ["audit", SECRET],
    ["explain", "x", SECRET],
    ["explain", "--at", SECRET],
    ["explain", "x", "--since", SECRET],
    ["explain", "x", "--partition", SECRET],
    ["reset", "--to", "2h", SECRET],
    ["pipe", SECRET],
    ["demo", f"--x\ny={SECRET}"],
    ["try", "--events", SECRET],
    ["try", f"--json={SECRET}"],
    ["audit", f"--json={SECRET} (choose from {SECRET})"],
    ["reset", "--to", SECRET],
    ["reset", f"--to=1{SECRET}"],
    ["pipe", "--capacity", SECRET],
    ["pipe", "--capacity", f"1{SECRET}"],
    ["pipe", "--error-rate", SECRET],
    ["pipe", "--kind", SECRET],
    ["pipe", "--kind", f"{SECRET} (choose from {SECRET}) "],
    ["pipe", "--normalize", SECRET],
    ["pipe", "--max-size", SECRET],
    ["pipe", "--key", SECRET],
    ["pipe", "--key", f"user:{SECRET}"],
    ["pipe", f"--ha={SECRET}x", f"--h={SECRET}"],
    ["plan", "--window", SECRET],
    ["plan", "--rate", f"1/{SECRET}"],
    ["plan", f"--table={SECRET}"],
    ["plan", "--keys", SECRET],
    ["lists", SECRET],
    ["lists", "build", f"--s={SECRET}", "in", "-o", "out"],
    ["lists", "build", "in", "-o", "out", "--name", f"{SECRET}\n"],
    ["lists", "build", "in", "-o", "out", "--bad-max", SECRET],
    ["lists", "build", "in", "-o", "out", "--hash-key-file", SECRET],
    ["lists", "build", "in", "-o", "out", "--format", SECRET],
]


OTHERS = ["12345678901234567890123456789012", f"12{SECRET}", "5SECRET", "aHVudGVyMi1odW50ZXIyCg=="]
PLACES = [
    ["pipe", "--capacity"],
    ["pipe", "--error-rate"],
    ["plan", "--rate"],
    ["pipe", "--kind"],
    ["lists"],
    ["pipe", "--key"],
    ["lists", "build", "in", "-o", "out", "--hash-key-file"],
    ["run", "--set"],
    ["run"],
]


def test_a_wrong_argument_is_not_repeated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ends with status 2, and names the argument; also of a secret that begins like a number."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").write_text("a\n")
    (tmp_path / "dedup.yaml").touch()
    monkeypatch.setenv("STREAMDEDUP_CONFIG", "dedup.yaml")

    def check(row: tuple[list[str], str]) -> None:
        arguments, secret = row
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
        try:
            status = main(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
        said = capsys.readouterr()
        assert status == 2
        assert said.err
        assert secret not in said.out + said.err

    like_numbers = [([*place, other], other) for place, other in product(PLACES, OTHERS)]
    every([*((arguments, SECRET) for arguments in WRONG), *like_numbers], check)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pipe", "--kind", "bitter"], "argument --kind: invalid choice (choose from "),
        (["pipe", "--kind", "0"], "argument --kind: invalid choice: '0' (choose from "),
        (["pipe", "--no-such", "x"], "unrecognized arguments: --no-such\n"),
        (["demo", "x"], "unrecognized arguments\n"),
        (["pipe", "x"], "FILE: No such file or directory; name a file, or - for standard input\n"),
        (
            ["pipe", "a", "b"],
            "FILE 1: No such file or directory; name a file, or - for standard input\n",
        ),
        (
            ["pipe", "a", "-", "b", "--kind", "exact"],
            "FILE 1: No such file or directory; name a file",
        ),
        (["run", "x"], "FILE: No such file or directory; it is the configuration, the same as -c"),
        (["pipe", "--h=1"], "ambiguous option: it could match --"),
        (["try", "--json=1"], "argument --json: takes no value\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_still_said(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The argument that is at fault, what was given if it cannot be a secret, and what it may be."""
    with suppress(SystemExit):
        main(arguments)
    assert said in capsys.readouterr().err
