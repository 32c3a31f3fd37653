"""Claims about compiled functions: what they are made of, what the compiler makes of them, and no type was guessed.

A kernel that comes from the cache has forgotten what was inferred, so that is inferred again, without a compiler
(`inferred`).
"""

import json
import operator
import os
import pkgutil
import re
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from copy import copy
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

import numba
import numpy as np
import pytest
from numba.core import compiler as untyped_compiler
from numba.core import compiler_machinery as untyped_machinery
from numba.core import ir
from numba.core.typed_passes import AnnotateTypes

import streamdedup
from streamdedup import filters, library
from streamdedup.events import Column
from streamdedup.filters.base import Removable, Static, Unionable
from streamdedup.filters.exact import digest_map
from streamdedup.filters.window.protocol import Windowed
from streamdedup.kafka.records import origin_header
from streamdedup.kafka.records.encoding import BatchEncoder
from streamdedup.kafka.records.encoding import warm_up as warm_up_records
from streamdedup.kafka.records.headers import RawHeaders
from streamdedup.kafka.records.wire import decode, record_batches
from streamdedup.kernel import ENTRIES, KERNELS, Entry, cache_root, unwritten
from streamdedup.kernel import sources as sources_of
from streamdedup.keys import join, placement
from streamdedup.keys.formats import csv_column, json_column, json_exact, line_column
from streamdedup.keys.hashing import Digests, Hash
from streamdedup.keys.normalizers import ascii_text, domains, email_column, host_column, url_column
from streamdedup.keys.options import EmailPreset, EmailRules, UrlRules
from streamdedup.rules import duplicates_rule, warm_up, warm_up_all
from streamdedup.rules.window import DuplicatesWithin
from tests.filters.cases import CASES, HASH_KEY, STATIC_KINDS, Case, copies, random_digests
from tests.kafka.test_columns import fetched
from tests.kafka.test_wire import built, rows_by_chance
from tests.kernel_probes import run
from tests.watching import watched

types: Any = numba.types  # its classes are made in ways that no type checker knows
compiler: Any = untyped_compiler
machinery: Any = untyped_machinery

GIVEN_BACK = """
from pathlib import Path
from streamdedup import build
from streamdedup.kernel import give_back_compiler

def resident_kib():
    library, kib = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.partition(" ")[0]:
            library = "libllvmlite" in line
        elif library and line.startswith("Rss:"):
            kib += int(line.split()[1])
    return kib

kept = build({"kind": "cuckoo", "capacity": 1000})
kept.add("a")
before = resident_kib()
give_back_compiler()
print(before, resident_kib())
assert "a" in kept
assert "a" not in build({"kind": "bloom", "capacity": 1000})
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="no list of mappings")
def test_the_memory_of_the_compiler_is_given_back(tmp_path: Path) -> None:
    """What was loaded goes on, and another kernel is loaded, or compiled, as before."""
    before, after = map(int, run(["-c", GIVEN_BACK], tmp_path).stdout.split())
    assert after < before / 4
    assert before > 20 << 10


def test_no_page_is_given_back_that_is_not_in_the_file() -> None:
    """The loader wrote some, which may be in the swap space; others may be written at any time."""
    kept = [("r--p", 8, 0), ("r--p", 0, 8), ("rw-p", 0, 0)]
    mapped = [("libllvmlite.so", *pages) for pages in [("r-xp", 0, 0), *kept, ("r--p", 0, 0)]]
    listed = "".join(
        f"{n}000-{n}fff {rights} 00365000 fe:00 2472 /a dir\udcff/{name}\nSize: 9 kB\nRss: 9 kB\n"
        f"Anonymous:             {anonymous} kB\nKSM: 0 kB\nSwap:          {swap} kB\nVmFlags: rd\n"
        for n, (name, rights, anonymous, swap) in enumerate(
            [("libc.so", "r-xp", 0, 0), *mapped, ("libz.so", "r-xp", 0, 0)], 1
        )
    )
    found = [*unwritten(listed.encode("utf-8", "surrogateescape"))]
    assert found == [(0x2000, 0x2FFF), (0x6000, 0x6FFF)]


def test_kernels_are_made_of_nothing_that_the_cache_does_not_know() -> None:
    """Each module that has a kernel is a source, and so is each that such a module imports; few others are."""
    package = Path(streamdedup.__file__).parent
    known = sources_of(package)
    names = {dispatcher.py_func.__module__ for dispatcher in KERNELS}
    with_kernels = {name for name in names if name.startswith("streamdedup.")}
    assert with_kernels <= set(known)
    for name in known:
        module = import_module(name)
        for value in vars(module).values():
            used = getattr(value, "__module__", None) or ""
            if used.startswith("streamdedup."):
                assert used in known, f"{name} uses {used}"
    others = r"streamdedup(\.(cli|worker|delivery|settings|snapshot|library|lookaside)|$)"
    assert not {name for name in known if re.match(others, name)}


@pytest.mark.parametrize(
    "code",
    [
        "import streamdedup; streamdedup.build({'kind': 'cuckoo', 'capacity': 10})",
        "import streamdedup; streamdedup.load('there.filter')",
        "from streamdedup.cli import main; import sys; sys.exit(main(['pipe', '--capacity', '10']))",
    ],
    ids=["build", "load", "pipe"],
)
def test_kernels_that_would_run_as_python_are_refused(code: str, tmp_path: Path) -> None:
    """By the name of the variable."""
    saved = streamdedup.build({"kind": "bloom", "capacity": 10})
    streamdedup.save(saved, tmp_path / "there.filter")
    given = {
        "PYTHONPATH": str(Path(streamdedup.__file__).parents[1]),
        "NUMBA_DISABLE_JIT": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, **given},
        input="a\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == (2 if "pipe" in code else 1)
    assert "NUMBA_DISABLE_JIT is set" in done.stderr
    assert "unset it" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("level", ["NOTSET", "DEBUG"])
def test_a_program_that_logs_all_gets_no_log_of_the_compiler(
    kernel_sources: Path, tmp_path: Path, level: str
) -> None:
    """As under Scrapy, whose level is DEBUG: numba would log each instruction. If its level is set, that holds."""
    source = f"import logging; logging.basicConfig(level=logging.DEBUG); logging.getLogger('numba').setLevel('{level}')"
    done = run(["-c", f"{source}; import probe"], kernel_sources, STREAMDEDUP_CACHE=str(tmp_path))
    assert done.stdout.split() == ["0", "1"]
    assert ("DEBUG:numba" in done.stderr) == (level == "DEBUG")


LISTING = """
import re
import numpy as np
from streamdedup.instructions import prefetch
from streamdedup.kernel import inlined, kernel

four, one = np.uint64(4), np.uint64(1)

@WAY
def free(words, at):
    while words[at] != one:
        at += one
    return at

@WAY
def asked(words, at):
    prefetch(words, at)
    if at > four:
        return at
    return free(words, at) + free(words, free(words, at) + one)

@kernel
def ask_all(words, rows):
    for i in range(rows.shape[0]):
        rows[i] = asked(words, rows[i])

ask_all(np.ones(8, np.uint64), np.zeros(8, np.uint64))
(assembly,) = ask_all.inspect_asm().values()
for instruction in ("call|bl", "prefetch|prfm"):
    print(len(re.findall(rf"^\\s+({instruction})", assembly, re.MULTILINE)))
"""


def test_an_inlined_function_is_never_called(kernel_sources: Path) -> None:
    """What kernels call for each row stands in them, early returns and all; nor are references to arrays counted."""
    calls = {}
    for way in ("kernel", "inlined"):
        (kernel_sources / "probe.py").write_text(LISTING.replace("WAY", way))
        calls[way], prefetches = map(
            int,
            run(["probe.py"], kernel_sources, STREAMDEDUP_CACHE="/dev/null/none").stdout.split(),
        )
        assert prefetches  # an instruction of the processor's
    assert calls["inlined"] < calls["kernel"]


# --- what was compiled ---


@pytest.fixture(scope="module")
def used() -> dict[str, list[str]]:
    """Give the report of a process that used all kinds of filter, and so every kernel."""
    done = run(
        ["-c", "from proof.test_kernel import report; report()"],
        Path(__file__).parent.parent,
        STREAMDEDUP_CACHE=str(cache_root()),
    )
    return cast("dict[str, list[str]]", json.loads(done.stdout))


def test_every_kernel_inferred_what_was_meant(used: dict[str, list[str]]) -> None:
    """No kernel has a float, a uint64 that met a signed integer, or another type where np.uint64 is written."""
    assert used["misinferred"] == []


def test_every_kernel_was_looked_at(used: dict[str, list[str]]) -> None:
    """The check above leaves none out: what it does not use, `report` must learn to use."""
    assert used["unused"] == []


def test_an_entry_calls_the_interpreter_only(used: dict[str, list[str]]) -> None:
    """Seven functions of the stable ABI, and four more where a time is taken; no other library, and nothing raises."""
    one_key = {
        *("PyBool_FromLong", "PyByteArray_AsString", "PyBytes_AsString", "PyBytes_Size"),
        *("PyErr_Clear", "PyObject_CallMethod", "PyUnicode_AsUTF8AndSize"),
    }
    and_a_time = {"PyErr_Occurred", "PyLong_AsLongLong"}
    and_a_time |= {"PyObject_GetAttrString", "PyObject_Vectorcall", "Py_DecRef"}
    assert len(used["calls"]) == 21  # methods, of all kinds
    for calls in used["calls"]:
        asked = set(calls.split())
        assert asked == one_key or asked == one_key - {"PyObject_CallMethod"} | and_a_time


def test_nothing_compiles_after_the_warm_up(used: dict[str, list[str]]) -> None:
    """Once a filter and its hash are warm, no batch waits for a compiler, whatever the layout of its digests."""
    assert used["late"] == []


def test_compile_leaves_nothing_to_compile() -> None:
    """What `streamdedup compile` puts into a cache is all that a worker warms up, whatever its filter and hash."""
    done = run(
        ["-c", "from proof.test_kernel import report_left; report_left()"],
        Path(__file__).parent.parent,
        STREAMDEDUP_CACHE=str(cache_root()),
    )
    assert json.loads(done.stdout) == []


_1 = np.uint64(1)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda number: number + 1, "uint64 add Literal[int](1)"),
        (lambda number: number << np.int64(2), "uint64 lshift int64"),
        (lambda number: number / _1, "float64"),
        (lambda number: number if number > _1 else -1, "float64"),
    ],
)
def test_the_check_finds_what_numba_makes_of_mixed_numbers(
    function: Callable[[Any], Any], fault: str
) -> None:
    """A literal, a signed number, a division, a variable of two types: each is found."""
    compiled: Any = numba.njit(function)
    compiled(_1)
    assert any(fault in found for found in misinferred([compiled]))


def test_the_check_finds_what_is_not_as_written() -> None:
    """An argument or a result that is written as np.uint64 and is none is found; one that is, is not."""

    def step(number: np.uint64) -> np.uint64:
        return number

    compiled: Any = numba.njit(step)
    compiled(_1)
    assert list(misinferred([compiled])) == []
    compiled(-1)
    assert len(list(misinferred([compiled]))) == 2


# --- how long a call takes ---


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels_yield(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large a batch or a table, it is worked on in calls of 10 ms at most: between them others have a turn."""
    count = 300_000
    _exercise(
        case, 100
    )  # compiled before the watch begins: a kernel cannot call what only watches one
    calls = _watched(monkeypatch)
    batches = _exercise(case, count)
    assert len(calls) >= batches * count / ROWS_MAX
    assert _most_of_them(calls) < CALL_S_MAX, calls


@pytest.mark.parametrize("kind", sorted(STATIC_KINDS))
def test_kernels_yield_while_they_build(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does a filter that is built at once keep the processor to itself."""
    static = cast("Static", filters.kind_of(kind))
    for count in (1000, 300_000):
        calls = _watched(monkeypatch) if count > 1000 else []
        built = static.from_digests(random_digests(24, count), 1e-2, Hash())
        assert built.contains_many(random_digests(24, count)).all()
    assert len(calls) >= 2 * count / ROWS_MAX
    assert _most_of_them(calls) < CALL_S_MAX, calls


CALL_S_MAX = 0.01
ROWS_MAX = 1 << 15  # of a call: on a slower machine, too, where a row may take 300 ns


def _most_of_them(calls: list[float]) -> float:
    """What nine of ten calls stay below: a machine that is busy with other things may hold one up."""
    return sorted(calls)[len(calls) * 9 // 10]


def _exercise(case: Case, count: int) -> int:
    """Everything that takes a batch, or goes over the whole table; the number of batches."""
    seen, keys = case.build(count, case.error_rates[0]), random_digests(23, count)
    new = seen.add_many(keys)
    assert seen.contains_many(keys).all()
    restored = case.restore(seen.header(), copies(seen))
    assert restored.contains_many(keys).all()
    if isinstance(seen, Unionable):
        seen |= cast("Any", restored)
    if isinstance(seen, Removable):
        assert seen.remove_many(keys[new]).all()
    return 4 if isinstance(seen, Removable) else 3


def _watched(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of this thread that each call of a kernel takes from here on."""
    calls: list[float] = []

    ours = [sys.modules[name] for name in sys.modules if name.startswith("streamdedup.filters.")]
    for module in ours:
        for name, value in list(vars(module).items()):
            if any(value is kernel for kernel in KERNELS):
                monkeypatch.setattr(module, name, watched(value, calls))
    return calls


def misinferred(kernels: list[Any]) -> Iterator[str]:
    """What is of another type than was meant, in kernels that were called, and in those that these call."""
    done = set[tuple[Any, Any]]()
    while left := {(each, types_) for each in kernels for types_ in each.overloads} - done:
        for compiled, arguments in left:
            yield from _misinferred(compiled, arguments)
        done |= left


def _misinferred(compiled: Any, arguments: tuple[Any, ...]) -> Iterator[str]:
    """Yield what in a kernel is of another type than was meant, if it is called with these types."""
    name, made = _name(compiled), inferred(compiled, arguments)
    notes = made.type_annotation
    written = signature(compiled.py_func)
    meant = [parameter.annotation for parameter in written.parameters.values()]
    pairs = [
        *zip(meant, arguments, strict=True),
        *_results(written.return_annotation, made.signature.return_type),
    ]
    for annotation, type_ in pairs:
        if annotation is np.uint64 and type_ != types.uint64:
            yield f"{name}{arguments}: np.uint64 is written where {type_} was inferred"
    for variable, type_ in notes.typemap.items():
        if isinstance(type_, types.Float):
            yield f"{name}{arguments}: {variable} is {type_}"
    for block in notes.blocks.values():
        yield from (f"{name}: {found}" for found in _mixed(block.body, notes.typemap))


@machinery.register_pass(mutates_CFG=False, analysis_only=True)
class _Inferred(machinery.AnalysisPass):  # type: ignore[misc]  # numba's are untyped
    """Ends a compilation with what was inferred, before any machine code is made."""

    _name = "inferred"

    def __init__(self) -> None:
        machinery.AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        made = state.return_type(*state.args)  # a signature
        state.cr = compiler.compile_result(type_annotation=state.type_annotation, signature=made)
        return False


class _Inference(compiler.CompilerBase):  # type: ignore[misc]  # numba's are untyped
    """numba's own compiler, as far as types go."""

    def define_pipelines(self) -> list[Any]:
        whole = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state).passes
        last = [each for each, _ in whole].index(AnnotateTypes)
        types_only = machinery.PassManager("types")
        types_only.passes = [*whole[: last + 1], (_Inferred, "keep what was inferred")]
        types_only.finalize()
        return [types_only]


def inferred(compiled: Any, arguments: tuple[Any, ...]) -> Any:
    """Infer again what numba infers in a kernel for these types; kernels that it calls get their types, too."""
    inference = copy(compiled._compiler)
    inference.pipeline_class = _Inference
    return inference.compile(arguments, None)


def _results(written: Any, type_: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(type_, types.BaseTuple):
        meant = get_args(written) or get_type_hints(written).values()  # those of a NamedTuple
        yield from zip(meant, type_, strict=True)
    else:
        yield written, type_


_COMPARISONS = {operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge}


def _mixed(statements: list[Any], typemap: Any) -> Iterator[str]:
    """Where arithmetic takes a uint64 and a signed integer; a comparison of the two is exact."""
    for statement in statements:
        found = getattr(statement, "value", None)
        if not isinstance(found, ir.Expr) or found.op not in ("binop", "inplace_binop"):
            continue
        sides = typemap[found.lhs.name], typemap[found.rhs.name]
        signed = any(isinstance(side, types.Integer) and side.signed for side in sides)
        if types.uint64 in sides and signed and found.fn not in _COMPARISONS:
            yield f"line {statement.loc.line}: {sides[0]} {found.fn.__name__} {sides[1]}"


def report() -> None:
    """Use every kernel of the package, and print what is wrong with which."""
    for room in ("filters", "keys", "rules"):
        package = import_module(f"streamdedup.{room}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    late = [*_hash_used(Hash()), *_hash_used(Hash("siphash", HASH_KEY))]
    late += _json_used()
    late += _letters_used()
    late += _addresses_used()
    late += _urls_used()
    late += _digest_map_used()
    for case in CASES:
        late += _used(case)
    late += _records_used()
    late += _placement_used()
    line_column.warm_up()
    csv_column.warm_up()
    _others_used()
    library.warm_up()
    seen: Any = library.build({"kind": "cuckoo", "capacity": 600})
    assert seen == seen.copy()
    calls = [" ".join(_calls(entry)) for entry in ENTRIES]
    found = {
        "calls": calls,
        "misinferred": [*misinferred(KERNELS)],
        "unused": [_name(kernel) for kernel in KERNELS if not kernel.overloads],
        "late": late,
    }
    json.dump(found, sys.stdout)


def report_left() -> None:
    """Print the kernels that `streamdedup compile` leaves to the warm-up of some worker."""
    warm_up_all()
    warm_up_records()
    before = _compiled()
    for case in CASES:
        warm_up(case.build(600, case.error_rates[0]))
    json.dump([*_since(before)], sys.stdout)


def _hash_used(hash_: Hash) -> Iterator[str]:
    """Use a hash in all the ways that a batch may come; yield what was compiled for that after the warm-up."""
    hash_.warm_up()
    before = _compiled()
    offsets = np.arange(1001, dtype=np.int64)
    frozen = np.arange(0, 1001, dtype=np.int32)
    frozen.flags.writeable = False
    for keys in (["key"] * 1000, (b"x" * 1000, offsets), (bytearray(1000), frozen)):
        hash_.digests(keys)
    narrow: Any = np.ones(501, dtype=np.int32)
    hash_.of_column(Column(b"x" * 1001, offsets[::2], narrow))
    hash_.signed("a key")
    yield from _since(before)


def _json_used() -> Iterator[str]:
    """As `_hash_used`, for the keys of JSON: buffers and places that are read-only, writable, of any layout."""
    json_column.warm_up()
    json_exact.warm_up()
    join.warm_up()
    before = _compiled()
    text, places = b'{"id":1}', np.zeros(4, dtype=np.int64)
    for buffer in (text, bytearray(text), memoryview(text), np.frombuffer(text, dtype=np.uint8)):
        for starts in (places, places[::2], cast("Any", places.astype(np.int32))):
            column = Column(cast("bytes", buffer), starts, np.full(len(starts), 8))
            assert (json_column.located(("id",), column).sizes == 1).all()
            assert (json_exact.read(("id",), column)[0].sizes == 1).all()
            assert (json_exact.decoded(column).sizes == 8).all()
            assert (join.joined([column, column]).sizes == 24).all()
    places.flags.writeable = False
    json_column.located(("user", "id"), Column(text, places, places))
    yield from _since(before)


def _columns(text: bytes) -> Iterator[Column]:
    """Yield columns of `text`, twice: over buffers that are read-only and writable, with places of any layout."""
    for buffer in (text, bytearray(text), np.frombuffer(text, dtype=np.uint8)):
        for starts in (np.zeros(4, dtype=np.int64)[::2], np.zeros(2, dtype=np.int32)):
            sizes = np.full(2, len(text))
            yield Column(cast("bytes", buffer), cast("Any", starts), sizes)


def _letters_used() -> Iterator[str]:
    """As `_hash_used`, for normalization."""
    ascii_text.warm_up()
    before = _compiled()
    for column in _columns(b" A"):
        assert list(ascii_text.lower_column(ascii_text.trim_column(column))) == [b"a"] * 2
    yield from _since(before)


def _addresses_used() -> Iterator[str]:
    """As `_hash_used`, for e-mail addresses: by all rules and by none."""
    email_column.warm_up()
    domains.warm_up()
    before = _compiled()
    for column in _columns(b"A@b.cd"):
        for preset in get_args(EmailPreset):
            plain = email_column.plain(column, EmailRules.of(preset))
            assert list(plain) == [b"a@b.cd"] * 2
        assert len(domains.candidates(column)[0]) == 6
    yield from _since(before)


def _urls_used() -> Iterator[str]:
    """As `_hash_used`, for URLs: by all rules and by none; and for their hosts."""
    url_column.warm_up()
    host_column.warm_up()
    before = _compiled()
    for column in _columns(b"http://A"):
        for rules in (UrlRules(), UrlRules(True, True, True, True, True)):
            plain = url_column.plain(column, rules)
            assert list(plain) == [b"http://a/"] * 2
            keys = host_column.candidates(plain, drops_www=rules.www)[1]
            assert list(keys) == [b"/a", b"a"] * 2
    yield from _since(before)


def _digest_map_used() -> Iterator[str]:
    """As `_hash_used`, for the changes of a list: of any layout, read-only or not."""
    digest_map.warm_up()
    before = _compiled()
    digests = random_digests(22, 600)
    newer, older = (
        digest_map.DigestMap.of({bytes(digest): n % 3 for n, digest in enumerate(part)})
        for part in (digests[:300], digests[200:400])
    )
    both = newer.merged_into(older)
    for layout in (digests[:300], digests.copy(), np.asfortranarray(digests), newer.rows[:, :2]):
        found = newer.look_up(older, layout)
        assert np.array_equal(found, digest_map.EMPTY.look_up(both, layout))
        assert np.array_equal(found, both.numbers(layout))
    yield from _since(before)


def _used(case: Case) -> Iterator[str]:
    """Use a kind as the worker does and in every other way; yield what was compiled in the former after the warm-up."""
    seen, digests = case.build(600, case.error_rates[0]), random_digests(20, 600)
    warm_up(case.build(600, case.error_rates[0]))
    before = _compiled()
    rule = duplicates_rule(seen)
    for layout in (digests[:300], digests[100:].copy(), np.asfortranarray(digests)):
        rule.judge(layout, np.zeros(len(layout), dtype=np.int64), within_budget=True)
    rule.forget()
    for layout in (digests, digests.copy(), np.asfortranarray(digests)):
        seen.add_many(layout[:300])
        seen.contains_many(layout)
    yield from _since(before)
    other = case.build(600, case.error_rates[0])
    assert other.add(
        "a key"
    )  # the first key of all: some kinds have a kernel for filters that are not full
    more = random_digests(22, 600)
    seen.add_many(more)  # beyond capacity
    seen.add("a key")  # some have another for those that are
    restored = case.restore(seen.header(), [view.toreadonly() for view in copies(seen)])
    assert "a key" in restored
    found = restored.contains_many(more[-300:])  # a window has forgotten the first ones
    assert np.count_nonzero(found) > 280  # and did not add what it took for known
    if isinstance(seen, Removable):
        seen.remove_many(digests[:300])
        seen.discard("a key")
    if isinstance(seen, Unionable):
        seen |= cast("Any", other)
    if isinstance(seen, Windowed):
        _worked(seen, digests)


def _worked(seen: Windowed, digests: Digests) -> None:
    """Use a window in the worker's way."""
    generations, watermark = seen.folded(len(digests))
    for steps in (seen.put_many(digests, generations), seen.rotate(watermark)):
        deque(steps, maxlen=0)
    rule = DuplicatesWithin(seen)
    times = np.zeros(len(digests), dtype=np.int64)
    for _ in range(2):
        assert len(rule.judge(digests, times, within_budget=True)) == len(digests)
    deque(rule.admit(), maxlen=0)


def _records_used() -> Iterator[str]:
    """Read and write record batches as the worker does; yield what was compiled for that after the warm-up."""
    warm_up_records()
    before = _compiled()
    for codec in range(5):
        encoder = BatchEncoder(codec=codec, transactional=True, bytes_max=1000)
        bodies = Column.of([b"\x02k\x02v\x00"] * 100)
        for rows in (np.arange(50), np.arange(50, 100)[::-1]):
            encoder.add(bodies.take(rows), rows)
        for batch in encoder.finish():
            batch.stamp(-1, -1, -1)
            assert len(decode([*record_batches(bytes(batch.data))])) == batch.count
    cells = Column.of([b"\x02\x02h\x02x"] * 4)
    for part in (cells, cells.take(slice(None, None, 2)), cells.take(np.arange(3))):
        assert set(RawHeaders(part).located("h")) == {b"x"}
    yield from _since(before)


def _placement_used() -> Iterator[str]:
    """As `_records_used`, for what the two stages of a repartition do with an event."""
    placement.warm_up()
    origin_header.warm_up()
    before = _compiled()
    (first,) = fetched(built(rows_by_chance(1, 50)), events_max=50)
    for batch in (first, first.take(np.arange(0, 50, 3)), first.head(9)):
        for keys in (batch.keys, batch.keys.take(np.arange(len(batch))[::-1])):
            assert (placement.partitions_of(keys, 3) < 3).all()
        there = origin_header.marked(batch, np.arange(len(batch))[1::2], "g")
        assert origin_header.unmarked(there, "g")[1] is None
        assert origin_header.unmarked(batch, "g")[1] == 0
    yield from _since(before)


def _calls(entry: Entry) -> set[str]:
    """Compile an entry anew, with all that is inlined into it, and return the functions that it calls."""
    made = entry.empty()
    made.compile()
    declared = re.findall(r"^declare [^@]*@\"?([\w.]+)", made.inspect_llvm(), re.MULTILINE)
    return {name for name in declared if not name.startswith("llvm.")}


def _others_used() -> None:
    """Use what is no case of the conformance suite."""
    for kind in STATIC_KINDS:
        built = cast("Static", filters.kind_of(kind).from_digests(random_digests(21, 500), 1e-2))
        assert built.contains_many(random_digests(21, 500)).all()
        assert "absent" not in built or built.error_rate
    numbers: Any = filters.build({"kind": "bitmap", "range": [0, 9]})
    assert numbers.add_many(np.arange(5)).all()
    assert numbers.contains_many(np.arange(5)).all()
    assert numbers.remove_many(np.arange(3)).all()
    assert (numbers.discard(3), numbers.add(7), 7 in numbers) == (True, True, True)


def _compiled() -> Counter[str]:
    """For how many types each kernel was compiled."""
    return Counter({_name(kernel): len(kernel.signatures) for kernel in KERNELS})


def _since(before: Counter[str]) -> Iterator[str]:
    yield from (_compiled() - before).keys()


def _name(kernel: Any) -> str:
    return f"{kernel.py_func.__module__}.{kernel.py_func.__qualname__}"
