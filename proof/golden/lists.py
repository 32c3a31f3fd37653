"""Lists of every kind and their exact stores, as `lists build` wrote them; what `lists check` says of keys by them.

The lists stand in `lists/`, each store beside its list. A store is not written alike twice, so only what a command
reads in it is compared.
"""

import re
import shutil
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import idna

from proof.golden.command import Ended, call
from streamdedup.filters.kinds import LISTABLE
from streamdedup.keys import normalizers
from streamdedup.keys.normalizers import email
from streamdedup.keys.normalizers.base import characters_check
from streamdedup.lists.build import builder

DIRECTORY = Path(__file__).parent / "lists"
BUILT_AT = 1_700_000_000.0
# Of the Python, and of the idna, by which the golden lists were built.
LETTERS, UNICODE, IDNA = 0xC81B27ED, "14.0.0", "18.0.0"
HASH_KEY = "000102030405060708090a0b0c0d0e0f\n"

PLAIN = [f"key {number}" for number in range(120)] + ["key 7", "  spaced ", "CAPITAL", "日本"]
MAIL = [
    *(f"user{number}@example.com" for number in range(120)),
    *("User7@Example.com", "a.b+tag@gmail.com", "c@googlemail.com", "ü@bücher.example"),
    *("@junk.example", ".tree.example", "no address", "# a comment"),
]
WEB = [
    *(f"http://example.com/{number}" for number in range(120)),
    *("HTTPS://www.Example.com/x/?b=2&a=%41#top", "http://bücher.example", "http://[::0:1]/a/../b"),
    *("ftp://example.com/", "no URL", "# a comment"),
]
ASKED_PLAIN = [
    *("key 0", "key 119", "key 120", "spaced", "  spaced ", "capital", "CAPITAL", "日本")
]
ASKED_MAIL = [
    *("user0@example.com", "USER119@EXAMPLE.COM", "user120@example.com", "ab@gmail.com"),
    *("a.b@googlemail.com", "c@gmail.com", "ü@xn--bcher-kva.example", "x@junk.example"),
    *("x@sub.junk.example", "x@tree.example", "x@sub.tree.example", "no address"),
]
ASKED_WEB = [
    *("http://EXAMPLE.com/0", "http://example.com/119#a", "http://example.com/120"),
    *("http://example.com/x?a=A&b=2", "https://example.com/x?a=A&b=2", "http://[::1]/b/"),
    *("http://xn--bcher-kva.example/", "ftp://example.com/"),
]
ABSENT_PLAIN = [f"absent {number}" for number in range(400)]
ABSENT_MAIL = [f"absent{number}@example.org" for number in range(400)]
ABSENT_WEB = [f"http://example.org/{number}" for number in range(400)]


@dataclass(frozen=True)
class Recipe:
    """A golden list: its name, and the options of `lists build`."""

    name: str
    options: Sequence[str]

    @property
    def mail(self) -> bool:
        """Whether its entries are addresses and domains."""
        return "email" in self.options

    @property
    def keys(self) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
        """Its entries, keys to ask it for, and others that are in no entry."""
        if "url" in self.options:
            return WEB, ASKED_WEB, ABSENT_WEB
        return (MAIL, ASKED_MAIL, ABSENT_MAIL) if self.mail else (PLAIN, ASKED_PLAIN, ABSENT_PLAIN)

    @property
    def path(self) -> Path:
        """Of its golden file."""
        return DIRECTORY / f"{self.name}.list"

    @property
    def store(self) -> Path | None:
        """The directory of its exact store."""
        return self.path.with_name(f"{self.name}.list.exact") if "--exact" in self.options else None

    @property
    def secret(self) -> Sequence[str]:
        """The option that names the secret of its hash."""
        return ("--hash-key-file", "hash-key") if "siphash" in self.options else ()


_RATE = ("--error-rate", "0.02")
_MAIL = ("--normalize", "email")
_URL_RULES = (
    *("--url-rule", "slash", "--url-rule", "www", "--url-rule", "scheme"),
    *("--url-rule", "port", "--url-ignore", "sid", "--bad-max", "2"),
)
RECIPES: Sequence[Recipe] = [
    *(Recipe(kind, ("--kind", kind, *_RATE)) for kind in LISTABLE),
    Recipe("fuse-trim", (*_RATE, "--normalize", "trim")),
    Recipe("fuse-lowercase", (*_RATE, "--normalize", "lowercase")),
    Recipe("fuse-email", (*_RATE, *_MAIL)),
    Recipe("exact-email-strict", ("--kind", "exact", *_MAIL, "--email-preset", "strict")),
    Recipe("fuse-url-rules", (*_RATE, "--normalize", "url", *_URL_RULES)),
    Recipe("fuse-siphash", (*_RATE, "--hash", "siphash", "--hash-key-file", "hash-key")),
    Recipe("bloom-email-store", ("--kind", "bloom", *_RATE, *_MAIL, "--exact")),
]


@contextmanager
def _built_at_one_moment() -> Iterator[None]:
    """Have `lists build` stamp what it writes with one time."""
    built: Callable[..., Any] = partial(builder.build, wall_clock=lambda: BUILT_AT)
    with patch.object(builder, "build", built):
        yield


@contextmanager
def letters_then() -> Iterator[None]:
    """Have this Python and this idna know the letters of those by which the golden lists were built.

    Their versions of Unicode are part of a list's identity. No golden key has a letter that is new in another.
    """

    def then(*, lowers: bool) -> int:
        return LETTERS if lowers else characters_check(lowers=lowers)

    with (
        patch.object(normalizers, "characters_check", then),
        patch.object(email, "characters_check", then),
        patch.object(unicodedata, "unidata_version", UNICODE),
        patch.object(idna.idnadata, "__version__", IDNA),
    ):
        yield


def build(recipe: Recipe, directory: Path) -> Path:
    """Build it as the command does."""
    lines, _, _ = recipe.keys
    files = {"in.txt": "\n".join(lines) + "\n", "hash-key": HASH_KEY}
    output = directory / recipe.path.name
    with _built_at_one_moment(), letters_then():
        arguments = ["lists", "build", "in.txt", "-o", str(output), "--name", "golden"]
        ended = call([*arguments, *recipe.options], {}, files)
    assert ended.status == 0, ended.err
    return output


def make(recipes: Sequence[Recipe]) -> list[str]:
    """Write the golden lists that are missing; report the names."""
    missing = [recipe for recipe in recipes if not recipe.path.exists()]
    for recipe in missing:
        with TemporaryDirectory() as directory:
            made = build(recipe, Path(directory))
            shutil.copy(made, recipe.path)
            if recipe.store:
                shutil.copytree(made.with_name(f"{made.name}.exact"), recipe.store)
    return [recipe.path.name for recipe in missing]


def verdicts() -> Any:
    """What the commands say of each golden list and of keys by it."""
    with letters_then():
        return {recipe.name: _verdicts(recipe) for recipe in RECIPES}


def _verdicts(recipe: Recipe) -> Mapping[str, Any]:
    with TemporaryDirectory() as name:
        listed = Path(name) / recipe.path.name  # a store that is opened may be written to
        shutil.copy(recipe.path, listed)
        if recipe.store:
            shutil.copytree(recipe.store, listed.with_name(recipe.store.name))
        inspected = call(["lists", "inspect", str(listed)])
        _, asked, absent = recipe.keys
        made = {
            "inspect": [inspected.status, *_figures(inspected)],
            "check": _checked(recipe, listed, asked),
            "false positives": _blocked(_checked(recipe, listed, absent)),
        }
        if recipe.store:
            made["check --exact"] = _checked(recipe, listed, asked, "--exact")
            told = _checked(recipe, listed, absent, "--exact")
            made["false positives --exact"] = [line for line in told if "false" in line]
    return made


def _figures(ended: Ended) -> list[str]:
    """The version of a list, and the figures of all lines, but for those that name a version of software."""
    version = re.findall(r"\d{4}-\d\d-\d\dT[\d:]+Z-[0-9a-f]{8}", ended.out)
    lines = [line for line in ended.out.splitlines() if not re.search(r"\d\.\d+\.\d", line)]
    return [*version, *re.findall(r"(?<![\w.:-])\d[\d,.]*(?![\w:-])", "\n".join(lines))]


def _checked(recipe: Recipe, listed: Path, keys: Sequence[str], *options: str) -> list[str]:
    command = ["lists", "check", *recipe.secret, *options, str(listed)]
    ended = call([*command, *keys], {}, {"hash-key": HASH_KEY})
    assert ended.status == 0, ended.err
    return [re.sub(r"^malformed\t.*\t", "malformed\t", line) for line in ended.out.splitlines()]


def _blocked(lines: Sequence[str]) -> list[str]:
    return [line.rpartition("\t")[2] for line in lines if line.startswith("blocked")]
