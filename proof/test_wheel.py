"""Claims about what is installed: the wheel and the sdist hold all that the package needs, without a checkout."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamdedup.version import __version__
from tests.archives import unpack

ROOT = Path(__file__).parents[1]


def built(source: Path, target: str, directory: Path) -> Path:
    """Build the wheel or the sdist of `source`, without a network."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(directory)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (made,) = directory.iterdir()
    return made


def said(site: Path, *arguments: str, stdin: str = "") -> str:
    """Return what Python prints in an empty directory, with `site` before all that is installed."""
    work = site.with_name("work")
    work.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=work,
        env={**os.environ, "PYTHONPATH": str(site)},
        input=stdin,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


@pytest.fixture(scope="module", params=["checkout", "sdist"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the wheel of the checkout, or of the sdist, unpacked as pip does."""
    place, source = tmp_path_factory.mktemp("wheel"), ROOT
    if request.param == "sdist":
        unpack(built(ROOT, "sdist", place / "sdist"), place / "source")
        (source,) = (place / "source").iterdir()
    wheel = built(source, "wheel", place / "dist")
    unzip = [sys.executable, "-m", "zipfile", "-e", str(wheel), str(place / "site")]
    subprocess.run(unzip, check=True)
    return place / "site"


def test_the_package_is_imported_from_the_wheel(site: Path) -> None:
    """Its version is that of the checkout; examples of the configuration and the marker of types are in it."""
    code = "import streamdedup as s; print(s.__file__, s.__version__)"
    assert said(site, "-c", code).split() == [str(site / "streamdedup/__init__.py"), __version__]
    assert (site / "streamdedup/config/dedup.yaml").is_file()
    assert (site / "streamdedup/py.typed").is_file()
    assert (site / "streamdedup/server/page/index.html").is_file()
    assert not (site / "tests").exists()


def test_the_command_works_without_a_checkout(site: Path) -> None:
    """It prints its help, and drops duplicate lines."""
    assert "pipe" in said(site, "-m", "streamdedup", "--help")
    arguments = ("-m", "streamdedup", "pipe", "--capacity", "1000")
    assert said(site, *arguments, stdin="a\nb\na\n") == "a\nb\n"
