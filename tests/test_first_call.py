"""Claims about the first calls of a process: what they import, and that damage to what is kept costs time only."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import pytest

from streamdedup import library
from streamdedup.filters.kinds import GROWABLE, KINDS, STATIC
from streamdedup.kernel import cache, objects
from streamdedup.kernel.cache import CACHE_ENV, CacheDirectory, cache_root
from tests.kernel_probes import run

pytestmark = pytest.mark.skipif(not objects.IS_TRIED, reason="numba makes all entries here")

KEPT = "bloom_add"
# What a program that gets keys one by one must not wait for.
HEAVY = {"aiokafka", "crc32c", "importlib.metadata", "numba", "pydantic", "pydantic_core", "yaml"}
ANSWERS = """
import json, sys
if WITH_NUMBA: import numba
import streamdedup
made = []
for options in OPTIONS:
    seen = streamdedup.build({"capacity": 1000, **options})
    keys = [f"key {number * 7919 % 300}" for number in range(600)]
    made.append([seen.add(key) for key in keys])
    made.append([key in seen for key in [*keys, "absent", b"key 1", "\\u00e9"]])
    if hasattr(seen, "discard"):
        made.append([seen.discard(key) for key in keys[:400]])
    made.append(len(seen))
imported = sorted(name for name in HEAVY if name in sys.modules)
print(json.dumps([imported, made]))
"""
LINKS = """
from llvmlite import binding
from streamdedup.kernel import objects

binding.initialize_native_target()
binding.initialize_native_asmprinter()
machine = binding.Target.from_default_triple().create_target_machine(codemodel="large")

def linked(called):
    text = f"declare void @{called}()\\ndefine i64 @f() {{\\ncall void @{called}()\\nret i64 1\\n}}"
    return objects.link(machine.emit_object(binding.parse_assembly(text)), "f")

print(bool(linked("PyErr_Clear")), linked("no_such_function"), objects.link(b"no object", "f"))
"""


def _options() -> list[dict[str, Any]]:
    """Return the options of filters of all kinds whose builtins need no help: a window needs it to begin."""
    kinds = [kind for kind in KINDS if kind not in STATIC and kind != "window"]
    grown = [{"kind": kind, "on_full": "grow"} for kind in kinds if kind in GROWABLE]
    secret = {"kind": "bloom", "hash": "siphash", "hash_key": "bytes(16)"}
    return [*({"kind": kind} for kind in kinds), *grown, secret]


def _answers(
    options: list[dict[str, Any]], root: Path, *, numba: bool = False, opt: str = ""
) -> tuple[list[str], object]:
    """Give keys to filters in a process with this cache; return what of HEAVY it imported, and the answers."""
    given = {CACHE_ENV: str(root), **({"NUMBA_OPT": opt} if opt else {})}
    shown = repr(options).replace("'bytes(16)'", "bytes(16)")
    code = f"WITH_NUMBA, HEAVY, OPTIONS = {numba}, {sorted(HEAVY)}, {shown}\n{ANSWERS}"
    imported, answers = json.loads(run(["-c", code], root, **given).stdout)
    return imported, answers


@pytest.fixture(scope="module")
def kept() -> Path:
    """Make all entries, and return the file of one."""
    library.warm_up()
    directory = cache.place(0).directory
    assert directory
    return objects._path(directory, KEPT)


@pytest.mark.usefixtures("kept")
def test_keys_one_by_one_need_no_compiler() -> None:
    """Once entries are kept, no kind imports numba, or another library that takes long; answers are those of numba."""
    imported, answers = _answers(_options(), cache_root())
    assert imported == []
    with_numba, same = _answers(_options(), cache_root(), numba=True)
    assert "numba" in with_numba
    assert answers == same


def test_numba_makes_what_is_damaged_once(tmp_path: Path, kept: Path) -> None:
    """The process that finds it works, and the next one finds it whole. So it is if numba is set up in some way."""
    shutil.copytree(kept.parent, tmp_path / "kernels" / kept.parent.name)
    copied = tmp_path / "kernels" / kept.parent.name / kept.name
    assert _answers([{"kind": "bloom"}], tmp_path)[0] == []
    copied.write_bytes(copied.read_bytes()[:-1])
    assert "numba" in _answers([{"kind": "bloom"}], tmp_path)[0]
    assert objects._kept(copied)
    assert _answers([{"kind": "bloom"}], tmp_path)[0] == []
    assert "numba" in _answers([{"kind": "bloom"}], tmp_path, opt="1")[0]


@pytest.mark.parametrize(
    "damaged",
    [
        lambda whole, at: whole[:at],
        lambda whole, at: whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :],
        lambda whole, at: whole + whole[:at] if at else b"",
    ],
    ids=["cut", "flipped", "longer"],
)
def test_what_is_damaged_is_not_linked(
    tmp_path: Path, kept: Path, damaged: Callable[[bytes, int], bytes]
) -> None:
    """Wherever the damage is."""
    whole, place = kept.read_bytes(), CacheDirectory(tmp_path, is_writable=True)
    for at in range(0, len(whole), 100):
        (tmp_path / kept.name).write_bytes(damaged(whole, at))
        assert objects.load(place, KEPT) == 0
    (tmp_path / kept.name).write_bytes(whole)
    assert objects.load(place, KEPT) > 0


def test_the_file_of_another_entry_is_not_linked(tmp_path: Path, kept: Path) -> None:
    """As after a copy under its name: `add` would then answer what `in` does, and lose keys."""
    shutil.copy(kept, tmp_path / kept.name.replace(KEPT, "cuckoo_add"))
    place = CacheDirectory(tmp_path, is_writable=True)
    assert objects.load(place, "cuckoo_add") == 0


@pytest.mark.parametrize("rights", [0o602, 0o620, 0o666])
def test_what_another_user_could_write_is_not_linked(
    tmp_path: Path, kept: Path, rights: int
) -> None:
    """It would be run."""
    place = CacheDirectory(tmp_path, is_writable=True)
    shutil.copy(kept, tmp_path)
    assert objects.load(place, KEPT) > 0
    (tmp_path / kept.name).chmod(rights)
    assert objects.load(place, KEPT) == 0


def test_a_missing_symbol_is_no_crash(tmp_path: Path) -> None:
    """What calls a function that this process does not have is not linked, nor is what is no object."""
    assert run(["-c", LINKS], tmp_path).stdout.split() == ["True", "0", "0"]


def test_each_version_and_machine_has_its_own_code(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of numba, by the directory; of llvmlite, of the processor and of an object's layout, by the file."""
    place = cache.place(0)
    assert objects.load(place, KEPT) > 0
    for module, name, value in (
        (llvmlite, "__version__", "0"),
        (objects, "_target", lambda: ("", "", "")),
        (objects, "STATE_AT", 24),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            assert objects.load(place, KEPT) == 0
    monkeypatch.setattr(cache, "_version_of_numba", lambda: b"0")
    another = cache.place.__wrapped__(0)
    assert another.directory != kept.parent
    assert another.directory
    another.directory.rmdir()
