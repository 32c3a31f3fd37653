"""Doctor has something true to say of each kind of configuration: no check fails by a fault of ours."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streamdedup.doctor.lines import Status
from tests.doctor.stage import KEY, Stage
from tests.lists.files import list_file

VARIANTS: Mapping[str, Mapping[str, Mapping[str, Any] | None]] = {
    "no filter": {"filter": {"kind": "none"}},
    "a window by time": {"filter": {"kind": "window", "capacity": 1000, "retention": "7d"}},
    "a window by count": {"filter": {"kind": "window", "capacity": 1000}},
    "an exact set": {"filter": {"kind": "exact", "capacity": 1000}},
    "a bitmap": {"filter": {"kind": "bitmap", "capacity": 1000, "error_rate": 1e-3}},
    "growth up to a size": {"filter": {"capacity": 1000, "max_size": "1GiB"}},
    "a hash without secret": {"filter": {"capacity": 1000, "hash": "murmur3"}},
    "at least once": {"delivery": {"guarantee": "at_least_once"}},
    "shadow": {"sink": {"shadow": True}},
    "from the end": {"source": {"start": "latest"}},
    "URLs": {"key": {"from": "value", "normalize": "url"}},
    "several inputs": {
        "source": {"pattern": "in-.*", "repartition": {"topic": "middle", "partitions": 2}}
    },
}


def changed(stage: Stage, variant: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Change the configuration."""
    for section, options in variant.items():
        given = dict(options or {})
        if section in ("filter", "key") or "pattern" in given:
            stage.config[section] = given
        else:
            stage.config.setdefault(section, {}).update(given)
    if variant.get("filter", {}).get("kind") == "none":  # type: ignore[union-attr]  # it is a mapping
        file = list_file(stage.there.directory / "blocked.list", [b"nobody"])
        stage.config["blocklist"] = {"file": str(file)}


@pytest.mark.parametrize("run_before", [False, True])
@pytest.mark.parametrize("name", VARIANTS)
def test_nothing_is_wrong_with_it(tmp_path: Path, name: str, run_before: bool) -> None:
    """Before the first event, and after some: no failure, and no check that ended by an error of ours."""
    stage = Stage(tmp_path)
    changed(stage, VARIANTS[name])
    if run_before:
        stage.feed([KEY, b"another"])
        stage.emit(2)
        if "several" not in name:
            stage.commit(2, label=2)
    lines = stage.look().lines
    assert not [line.text for line in lines if "it failed" in line.sentence]
    assert not [line.text for line in lines if line.status is Status.FAILURE]
