"""Claims about the cache of kernels: it follows the sources, only this user fills it, and it is not needed to work.

The cache is chosen at import, so each claim runs in processes of its own.
"""

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import pytest

from streamdedup.kernel.cache import CACHE_ENV, LOCK, CacheDirectory, cache_directory
from streamdedup.kernel.compiler import KernelCache
from tests.kernel_probes import NOBODY, SHOWN, as_root, run


@pytest.mark.usefixtures("no_umask")
def test_directories_are_for_this_user_alone(cache_root: Path) -> None:
    """All that are made have mode 0700, whatever the umask leaves."""
    place = cache_directory("a")
    assert place == CacheDirectory(cache_root.resolve() / "kernels" / "a", is_writable=True)
    made = [cache_root, cache_root / "kernels", cache_root / "kernels" / "a"]
    assert {path.stat().st_mode & 0o777 for path in made} == {0o700}


@pytest.mark.parametrize("level", ["above", "", "kernels", "kernels/a"])
@pytest.mark.parametrize(
    ("change", "by"),
    [
        (lambda path: path.chmod(0o777), "every user"),
        (lambda path: path.chmod(0o702), "every user"),
        (lambda path: path.chmod(0o770), "group id"),
        pytest.param(lambda path: os.chown(path, NOBODY, 0), f"user id {NOBODY}", marks=as_root),
    ],
    ids=["all", "others", "group", "owner"],
)
def test_a_directory_that_others_could_change_is_not_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    level: str,
    change: Callable[[Path], None],
    by: str,
) -> None:
    """The directory itself, or one above it. It is named; nothing is made or read there."""
    root = tmp_path / "above" / "cache"
    (root / "kernels" / "a").mkdir(parents=True)
    monkeypatch.setenv(CACHE_ENV, str(root))
    changed = tmp_path / "above" if level == "above" else root / level
    change(changed)
    found = cache_directory("a")
    assert (found.directory, found.is_writable) == (None, False)
    assert by in found.unused
    assert str(changed) in found.unused
    assert (cache_directory("b").directory is None) == (level != "kernels/a")
    assert (root / "kernels" / "b").exists() == (level == "kernels/a")


@pytest.mark.parametrize("level", ["above", "above/cache", "above/cache/kernels"])
def test_a_directory_with_the_sticky_bit_keeps_what_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """As in /tmp, nobody else replaces it. In the directory of the files themselves, others could make some."""
    root = tmp_path / "above" / "cache"
    (root / "kernels" / "a").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv(CACHE_ENV, str(root))
    (tmp_path / level).chmod(0o1777)
    assert cache_directory("a").directory == root / "kernels" / "a"
    (root / "kernels" / "a").chmod(0o1777)
    assert cache_directory("a").directory is None


@as_root
@pytest.mark.parametrize("below", ["", "kernels", "kernels/a"])
def test_a_link_is_followed_before_its_target_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    """The place is without links, so nobody changes a link between the look and the use."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for made in (mine, theirs):
        (made / "kernels" / "a").mkdir(parents=True, mode=0o700)
        os.chown(made, os.geteuid() if made == mine else NOBODY, 0)
    root = tmp_path / "root"
    (root / below).parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv(CACHE_ENV, str(root))
    (root / below).symlink_to(mine / below)
    assert cache_directory("a").directory == mine / "kernels" / "a"
    (root / below).unlink()
    (root / below).symlink_to(theirs / below)
    assert f"user id {NOBODY}" in cache_directory("a").unused


@pytest.mark.parametrize("given", ["cache", "./cache", "../cache", ".", "~/cache"])
def test_a_relative_path_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """It would name another directory wherever the process starts. The same holds for the other variables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(CACHE_ENV, given)
    found = cache_directory("a")
    assert found.ignored == CACHE_ENV
    assert found.directory
    assert found.directory.is_relative_to(tmp_path / "home")
    monkeypatch.delenv(CACHE_ENV)
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    assert cache_directory("a") == CacheDirectory(found.directory, is_writable=True)
    monkeypatch.setenv("HOME", "home")
    assert cache_directory("a").directory is None
    assert {path.name for path in tmp_path.iterdir()} == {"home"}


@pytest.mark.parametrize("imports", ["", "streamdedup", "streamdedup.lookaside, streamdedup.cli"])
def test_how_numba_is_set_up_in_a_program_is_the_programs_choice(
    kernel_sources: Path, imports: str
) -> None:
    """Importing the package changes nothing of that, before numba and after it."""
    (kernel_sources / ".numba_config.yaml").write_text("cpu_name: generic")
    for code in (
        f"import {imports or 'sys'}; {SHOWN}",
        f"import numba, {imports or 'sys'}; {SHOWN}",
    ):
        assert run(["-c", code], kernel_sources).stdout == "0 None 3 generic\n"


def test_a_file_system_without_locks_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process compiles its own then. So it is if the lock is a link, or cannot be made."""

    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    with LOCK.giving_back():
        assert LOCK.take(tmp_path / "none")
        assert not LOCK.take(tmp_path / "none")  # a kernel that another calls
    (tmp_path / "lock").symlink_to(tmp_path / "other")
    with LOCK.giving_back():
        assert LOCK.take(tmp_path)
    assert not (tmp_path / "other").exists()
    (tmp_path / "lock").unlink()
    monkeypatch.setattr(fcntl, "flock", refuse)
    with LOCK.giving_back():
        assert LOCK.take(tmp_path)


def test_the_right_to_compile_is_given_back_also_after_an_error(tmp_path: Path) -> None:
    """Whatever ends the compilation, another process can go on."""
    for error in (RuntimeError, KeyboardInterrupt, None):
        try:
            with LOCK.giving_back():
                LOCK.take(tmp_path)
                with LOCK.giving_back():
                    assert not LOCK.take(tmp_path)
                assert _is_locked(tmp_path / "lock")
                if error:
                    raise error
        except (RuntimeError, KeyboardInterrupt):
            pass
        assert not _is_locked(tmp_path / "lock")


def test_a_kernel_that_cannot_be_kept_is_used_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that is full costs the next process its time, and this one nothing."""
    place = CacheDirectory(tmp_path, is_writable=True)
    double: Any = numba.njit(_double)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    double._cache = KernelCache(_double, place)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    assert double(21) == 42
    assert "a compiled kernel cannot be kept (No space left on device)" in caplog.text
    assert not list(tmp_path.rglob("*.nb?"))


def _double(number: int) -> int:
    return number + number


def _is_locked(path: Path) -> bool:
    with path.open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
