"""The command as an operator calls it: arguments, environment and files in; status and texts out."""

import os
from collections.abc import Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from streamdedup.cli import main

HOME = "/home/operator"
_KEPT = ("STREAMDEDUP_TEST_", "STREAMDEDUP_CACHE")  # of the tests, no options


@dataclass(frozen=True)
class Ended:
    """What a command left: its exit status, standard output, standard error."""

    status: int
    out: str
    err: str


def call(
    arguments: Sequence[str],
    environ: Mapping[str, str] | None = None,
    files: Mapping[str, str | bytes] | None = None,
) -> Ended:
    """Call the command within this process, in a directory of its own that holds `files`.

    Of the environment it sees `environ`, HOME, and what is none of its options.
    """
    raw = BytesIO()
    out, err = TextIOWrapper(raw, encoding="utf-8", newline=""), StringIO()
    with (
        TemporaryDirectory() as directory,
        chdir(directory),
        patch.dict(os.environ, _environ(environ or {}), clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        for name, content in (files or {}).items():
            Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
        try:
            status = main(arguments)
        except SystemExit as exit_:  # argparse's
            status = exit_.code if isinstance(exit_.code, int) else 0
        out.flush()
    return Ended(status, raw.getvalue().decode(), err.getvalue())


def _environ(given: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("STREAMDEDUP_") or name.startswith(_KEPT)
    }
    return {**kept, "HOME": HOME, **given}
