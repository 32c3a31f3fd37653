"""Lists that several processes share, and how often each kind errs."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streamdedup.events import Column
from streamdedup.filters.kinds import LISTABLE
from streamdedup.lists import key_list
from streamdedup.rules.lists import Match
from tests.filters.cases import band, random_digests
from tests.lists.test_key_list import matched
from tests.lists.tools import PROVIDER, RATES, built


@pytest.mark.parametrize("kind", LISTABLE)
def test_what_was_not_put_in_is_matched_as_seldom_as_the_error_rate_says(
    kind: str, tmp_path: Path
) -> None:
    """Of 200,000 keys that nobody listed."""
    listed = built(tmp_path, [f"entry {i}" for i in range(2000)], kind=kind)
    asked = random_digests(7, 200_000)
    found = int(np.count_nonzero(listed.match(Column.of([b"x"] * len(asked)), asked)))
    assert found <= band(RATES.get(kind, 1e-6) * len(asked))[1]


@pytest.mark.parametrize("kind", ["fuse", "bloom"])
def test_a_list_stands_on_the_file(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tables are the file's pages, read-only and shared, without a copy: so all workers of a machine share them."""
    monkeypatch.setattr(key_list, "COPIED_BYTES_MAX", 0)  # as if it were not a small one
    listed = built(tmp_path, ["a@x.com", "@y.com"], kind=kind, normalizing=PROVIDER)
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("only Linux tells what is mapped where")
    path = re.escape(str(tmp_path / "out.list"))
    spans = re.findall(rf"^(\w+)-(\w+) r--s .* {path}$", maps.read_text(), re.M)
    for number, buffer in enumerate(listed.buffers()):
        start = int(np.frombuffer(buffer, np.uint8).ctypes.data)
        assert buffer.readonly
        is_directory = (kind, number) == ("fuse", 1)  # which leads kernels, so it is a copy
        in_file = any(int(low, 16) <= start < int(high, 16) for low, high in spans)
        assert in_file != is_directory


def test_whoever_cuts_a_small_list_short_harms_nobody(tmp_path: Path) -> None:
    """As `cp` does for a moment. A process that has loaded the list has a copy; a mapped file would end the process."""
    built(tmp_path, ["a@x.com"])
    program = (
        "import os, sys; from streamdedup.lists import load; from streamdedup.events import Column\n"
        "listed = load(sys.argv[1]); os.truncate(sys.argv[1], 0)\n"
        "print(listed.match(Column.of([b'a@x.com']), listed.hash.digests(['a@x.com'])).tolist())"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "out.list")]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"[1]\n"


def test_a_list_that_is_replaced_stays_with_those_who_have_it(tmp_path: Path) -> None:
    """A build publishes by a rename. A process with the old list goes on with it; the next load gives the new one."""
    old = built(tmp_path, ["old"])
    new = built(tmp_path, ["new"])
    assert matched(old, "old", "new") == [Match.ADDRESS, Match.NONE]
    assert matched(new, "old", "new") == [Match.NONE, Match.ADDRESS]
