"""Claims about normalization: the kernels do to ASCII what Python does, and to nothing else anything."""

import subprocess
import sys

import pytest

from tests.broker.base import DEADLINE_S


@pytest.mark.parametrize(
    ("option", "passed"),
    [
        ((), b"Key\n key\nkey\nKEY \n"),
        (("--normalize", "trim"), b"Key\n key\nKEY \n"),
        (("--normalize", "lowercase"), b"Key\n"),
        (("--normalize", "lowercase", "--key", "line"), b"Key\n"),
    ],
    ids=["none", "trim", "lowercase", "line"],
)
def test_the_pipe_normalizes(option: tuple[str, ...], passed: bytes) -> None:
    """Lines pass as they came; what makes them equal is normalized."""
    done = subprocess.run(
        [sys.executable, "-m", "streamdedup", "pipe", *option],
        input=b"Key\n key\nkey\nKEY \n",
        capture_output=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert done.stdout == passed
