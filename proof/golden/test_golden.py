"""What earlier versions saved is loaded and written alike by every later one; what others rely on does not change."""

import difflib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proof.golden import deployment, lists
from proof.golden.filters import DIRECTORY, GOLDEN, Golden
from proof.golden.records import RECORDS, make, path_of, text_of
from streamdedup import filters
from streamdedup.snapshot.format import pieces
from streamdedup.snapshot.read import CopyingReader

SIZE_BYTES_MAX = 64 << 10  # of a file: they stay in the repository for ever
LISTS_BYTES_MAX = 200_000  # of all files together


def recorded(name: str) -> Any:
    """The record of that name, as it was committed."""
    return read(path_of(name).read_text(encoding="utf-8"))


def read(text: str) -> Any:
    """The value of a record. 10.0 is 10, as for all readers of JSON: pydantic's versions write either."""
    return json.loads(text, parse_float=lambda number: _whole(float(number)))


def _whole(number: float) -> float:
    return int(number) if number.is_integer() else number


def made_by(data: bytes, golden: bytes) -> bytes:
    """Make the same file as of the golden's time and writer."""
    reader, other = _reader_of(data), _reader_of(golden).header
    contents = reader.contents()
    header = replace(reader.header, saved_at=other.saved_at, writer=other.writer)
    content = pieces(header, contents.buffers, lambda: (contents.filter, contents.end_label))
    return b"".join(map(bytes, content))


def _reader_of(data: bytes) -> CopyingReader:
    stream = io.BytesIO(data)

    def read_into(view: memoryview) -> None:
        assert stream.readinto(view) == len(view)

    return CopyingReader(read_into, len(data))


# --- records ---


@pytest.mark.parametrize("name", RECORDS)
def test_what_is_recorded_does_not_change(name: str) -> None:
    """If a change is meant: delete the record, run `python -m proof golden`, and commit what it writes."""
    first, second = (
        json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True).splitlines()
        for value in (recorded(name), read(text_of(name)))
    )
    assert not "\n".join(difflib.unified_diff(first, second, lineterm=""))


def test_each_golden_is_there_and_no_other() -> None:
    """What nobody compares holds nothing; no file is large."""
    saved = {path: path.stat().st_size for path in DIRECTORY.glob("*.filter")}
    saved |= {path: path.stat().st_size for path in deployment.DIRECTORY.iterdir()}
    assert set(saved) == {one.path for one in GOLDEN} | {one.path for one in deployment.KINDS}
    assert max(saved.values()) <= SIZE_BYTES_MAX
    kept = {*(recipe.path for recipe in lists.RECIPES), *(r.store for r in lists.RECIPES)}
    assert {*lists.DIRECTORY.iterdir()} == kept - {None}
    sizes = [path.stat().st_size for path in lists.DIRECTORY.rglob("*") if path.is_file()]
    assert sum(sizes) <= LISTS_BYTES_MAX
    assert {*path_of("lists").parent.iterdir()} == {path_of(name) for name in RECORDS}


def test_every_kind_has_a_golden() -> None:
    """Of filters, of a worker's snapshots (but for `none`, which saves nothing), and of the lists of the command."""
    saved = {
        entry["kind"] for name in ("filters", "snapshots") for entry in recorded(name).values()
    }
    assert saved == {*filters.KINDS, *filters.LOADED}
    options = recorded("configuration-schema")["properties"]["filter"]["anyOf"][0]["properties"]
    kinds = {kind.name.split("-")[0] for kind in deployment.KINDS}
    assert {*options["kind"]["enum"]} == {"none", *kinds}
    (kind,) = (one for one in recorded("commands")["lists build"] if one["name"] == ["--kind"])
    assert {*kind["choices"]} == {recipe.name.split("-")[0] for recipe in lists.RECIPES}


def test_goldens_are_not_written_again(tmp_path: Path) -> None:
    """Making them adds what is missing, and leaves what is there."""
    there, missing = tmp_path / "there", tmp_path / "missing"
    there.write_text("what is there")
    assert make({there: lambda: b"now", missing: lambda: b"now"}) == ["missing"]
    assert (there.read_text(), missing.read_text()) == ("what is there", "now")


# --- files ---


@pytest.mark.parametrize("golden", GOLDEN, ids=str)
def test_a_saved_filter_answers_alike_where_it_is_mapped(golden: Golden) -> None:
    """The record is of one that was read: no key is lost, and it errs on the very same keys."""
    answers = read(json.dumps(golden.answers(mmap=True)))
    assert answers == recorded("filters")[str(golden)]
    assert answers["not found"] == 0


@pytest.mark.parametrize("golden", GOLDEN, ids=str)
def test_a_filter_is_saved_the_same_to_the_byte(golden: Golden) -> None:
    """Apart from when and by whom, which stands in the header."""
    before = golden.path.read_bytes()
    assert made_by(golden.content(), before) == before


@pytest.mark.parametrize("kind", deployment.KINDS, ids=lambda kind: kind.name)
def test_a_worker_writes_the_same_snapshot_to_the_byte(kind: deployment.Kind) -> None:
    """Label, identity and fingerprint included, apart from when and by whom it was written."""
    before = kind.path.read_bytes()
    assert made_by(kind.snapshot(), before) == before


@pytest.mark.parametrize("recipe", lists.RECIPES, ids=lambda recipe: recipe.name)
def test_a_list_is_built_the_same_to_the_byte(recipe: lists.Recipe, tmp_path: Path) -> None:
    """Of the same entries, at the same moment; apart from by whom."""
    before = recipe.path.read_bytes()
    assert made_by(lists.build(recipe, tmp_path).read_bytes(), before) == before
