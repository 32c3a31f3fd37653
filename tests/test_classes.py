"""The classes of the library's filters: each filter is an instance of one, and they say what is so."""

import copy
import re
import subprocess
import sys
from collections.abc import Callable
from inspect import Parameter, getattr_static, isfunction, signature
from pathlib import Path
from typing import Any

import pytest

import streamdedup
from streamdedup import classes
from streamdedup.errors import ConfigError
from streamdedup.filters import GROWABLE, KINDS
from streamdedup.filters.bitmap.hashed import HashedBitmap
from streamdedup.filters.kinds import kind_of
from tests.library import SETS, WAYS, built, pickled

CLASSES = {kind: classes.class_of(KINDS[kind].path.partition(":")[2]) for kind in KINDS}
LIBRARY: Any = streamdedup  # calls that a type checker refuses
OF_ALL = ["capacity", "error_rate", "on_full", "hash", "hash_key", "normalize"]


def class_of(way: tuple[str, Any]) -> Any:
    """The class that a filter is promised to have."""
    kind, options = way
    if "on_full" in options:
        return streamdedup.GrowingWindow if kind == "window" else streamdedup.Growing
    return streamdedup.DirectBitmap if "range" in options else CLASSES[kind]


# --- what a filter is ---


@pytest.mark.parametrize(("kind", "options"), [*WAYS, ("fuse", {"keys": ["a"]})], ids=str)
def test_each_filter_is_of_its_class(kind: str, options: Any, tmp_path: Path) -> None:
    """Also a copy, what was pickled, and what was loaded; of no other kind's."""
    seen = (
        streamdedup.build({"kind": kind, **options})
        if kind == "fuse"
        else built(kind, 100, **options)
    )
    streamdedup.save(seen, tmp_path / "saved")
    for one in (seen, copy.copy(seen), pickled(seen), streamdedup.load(tmp_path / "saved")):
        assert isinstance(one, class_of((kind, options)))
        of_others = [each for each in CLASSES.values() if isinstance(one, each)]
        assert len(of_others) == ("on_full" not in options or kind == "window")


@pytest.mark.parametrize(("kind", "options"), WAYS, ids=str)
def test_what_a_class_declares_is_there(kind: str, options: Any) -> None:
    """Each method and property is the filter's own, with the text of the class; the declaration is never called."""
    seen = built(kind, 100, **options)
    declared = class_of((kind, options))
    for name in dir(declared):
        if name.startswith("__") and name not in ("__or__", "__ior__", "__and__", "__iand__"):
            continue
        own, there = getattr_static(type(seen), name), getattr_static(declared, name)
        assert own is not there or not (isfunction(own) or isinstance(own, property)), name
        if isfunction(there) or isinstance(there, property):
            assert there.__doc__, name
            assert own.__doc__ == there.__doc__ or name == "hash", name
    if isinstance(seen, streamdedup.Removable):
        own_facts = [type(getattr(seen, name)) for name in ("multiset", "copies_max", "sticky")]
        assert own_facts == [bool, int, bool]


@pytest.mark.parametrize("kind", SETS)
def test_help_on_a_class_is_help_on_its_filters(kind: str) -> None:
    """What `add` returns and costs, on both."""
    seen = built(kind, 100)
    for name in ("add", "add_many", "__contains__", "capacity"):
        assert (
            getattr(type(seen), name).__doc__.strip()
            == getattr(CLASSES[kind], name).__doc__.strip()
        )
    assert "Return True if it was absent" in type(seen).add.__doc__
    assert type(seen).__doc__ == CLASSES[kind].__doc__


# --- how it is made ---


@pytest.mark.parametrize("kind", SETS)
def test_a_class_takes_the_options_of_its_kind(kind: str) -> None:
    """By their names, with the defaults of the filter; `build` makes the same of the same."""
    options = signature(CLASSES[kind]).parameters
    assert set(options) == {*OF_ALL, *KINDS[kind].options}
    made = HashedBitmap if kind == "bitmap" else kind_of(kind)
    own = signature(made.__init__).parameters
    for name in own.keys() & options.keys():
        assert options[name].default == own[name].default, name
    least = [name for name in options if options[name].default is Parameter.empty]
    assert least == ["capacity"]
    one: Any = CLASSES[kind](1000, 1e-3, hash="siphash", hash_key=b"0" * 16, on_full="stop")
    same: Any = streamdedup.build(
        kind=kind,
        capacity=1000,
        error_rate=1e-3,
        hash="siphash",
        hash_key=b"0" * 16,
        on_full="stop",
    )
    assert one.header() == same.header()
    assert type(one) is type(same)


@pytest.mark.parametrize("kind", GROWABLE)
def test_a_class_makes_a_filter_that_grows(kind: str) -> None:
    """It is of another class, since it can do less."""
    options = {"retention": "1d"} if kind == "window" else {}
    made: Any = CLASSES[kind](10, 1e-5, on_full="grow", max_size="1MiB", **options)
    assert isinstance(made, streamdedup.Growing)
    assert isinstance(made, streamdedup.Removable) is False


def test_a_bitmap_of_a_range_is_a_bitmap() -> None:
    """And can take integers out."""
    seen = streamdedup.Bitmap(range=[0, 99])
    assert isinstance(seen, streamdedup.DirectBitmap)
    assert (seen.range, seen.capacity) == ((0, 99), 100)


def test_fuse_takes_its_keys() -> None:
    """And what `build` takes of it."""
    assert set(signature(streamdedup.Fuse).parameters) == {
        *("keys", "error_rate", "hash", "hash_key", "normalize")
    }
    known = streamdedup.Fuse(["a", "b"], 0.01)
    assert ("a" in known, len(known), known.error_rate) == (True, 2, 2**-7)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (LIBRARY.Cuckoo, ConfigError, "^capacity is required"),
        (
            lambda: LIBRARY.Cuckoo(10, capacty=10),
            ConfigError,
            "^capacty is unknown; did you mean",
        ),
        (
            lambda: LIBRARY.Cuckoo(10, probe="double"),
            ConfigError,
            "^probe is not for kind cuckoo",
        ),
        (lambda: LIBRARY.Cuckoo(10, capacity=10), TypeError, "Cuckoo got capacity twice"),
        (lambda: LIBRARY.Cuckoo(10, 0.1, True), TypeError, "too many positional arguments"),
        (lambda: LIBRARY.Growing(10), TypeError, "Growing is what several kinds"),
        (LIBRARY.Addable, TypeError, "Addable is what several kinds"),
        (LIBRARY.build, ConfigError, "^kind is required"),
        (lambda: LIBRARY.build([], kind="bloom"), ConfigError, "build takes a mapping"),
    ],
)
def test_a_wrong_call_is_refused(make: Callable[[], object], error: type, text: str) -> None:
    """The message names the argument as the caller wrote it."""
    with pytest.raises(error, match=text):
        make()


def test_keywords_go_over_the_mapping() -> None:
    """As in `dict(mapping, **keywords)`."""
    config = {"kind": "bloom", "capacity": 10}
    assert streamdedup.build(config, capacity=20).capacity == 20
    assert config["capacity"] == 10
    assert streamdedup.build(kind="bloom", capacity="1k").capacity == 1000


@pytest.mark.parametrize("base", [*CLASSES.values(), streamdedup.Filter])
def test_a_class_has_no_subclasses(base: Any) -> None:
    """The builtins of a class are its own; the message names the way that is left."""
    with pytest.raises(TypeError, match=r"class Mine: a filter has no subclasses.*as an attribute"):
        type("Mine", (base,), {})


# --- the package ---


def test_the_package_names_what_is_public() -> None:
    """`dir` has all names, which are there; another one is an AttributeError."""
    assert set(streamdedup.__all__) <= set(dir(streamdedup))
    assert all(getattr(streamdedup, name) for name in streamdedup.__all__)
    public = {name for name, one in vars(classes).items() if one in CLASSES.values()}
    assert public <= set(streamdedup.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Quotient'"):
        streamdedup.Quotient  # type: ignore[attr-defined] # noqa: B018


def test_names_are_imported_without_numpy() -> None:
    """A program that only names a class pays for numpy when it makes a filter."""
    code = (
        "import sys, streamdedup; dir(streamdedup); from streamdedup import build, Cuckoo, Addable;"
        " print(*{'numba', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_the_table_of_the_options_is_true() -> None:
    """docs/library.md says of each option which classes take it."""
    text = (Path(__file__).parents[1] / "docs" / "library.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", text.partition("| Option |")[2], re.MULTILINE)
    documented = {name: set(re.findall(r"`(\w+)`", told)) for name, told in rows}
    of_class = {cls.__name__: set(signature(cls).parameters) for cls in CLASSES.values()}
    options = set.union(*of_class.values())
    expected = {name: {cls for cls, taken in of_class.items() if name in taken} for name in options}
    every = {name for name, told in rows if told.startswith("all")}
    for name in every:
        documented[name] = set(of_class) - documented[name]
    assert documented.pop("max_size") == {CLASSES[kind].__name__ for kind in GROWABLE}
    assert documented == expected
