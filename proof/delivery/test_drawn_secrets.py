"""More claims about drawn secrets: a former murmur3, what is told of a hash, and what hashing costs."""

from pathlib import Path
from typing import Any

import pytest

from streamdedup.commands.trial import tried
from streamdedup.keys.hashing import Hash
from streamdedup.settings import load as load_settings
from streamdedup.testing import connected_to
from tests.delivery.test_drawn_secrets import DRAWN, GIVEN, MURMUR3, Stage
from tests.lists.files import list_file
from tests.memory import over


@pytest.mark.parametrize(
    ("options", "secret"), [(DRAWN, "drawn"), (GIVEN, "configured"), (MURMUR3, "none")]
)
@over(Stage)
async def test_the_start_and_a_trial_name_the_hash(
    stage: Stage, options: dict[str, str], secret: str
) -> None:
    """Under murmur3 the promise has a condition, and a trial does not test that hash."""
    stage.hashed_by(options)
    worker = await stage.through(range(10))
    (line,) = worker.lines("worker_starts")
    is_murmur3 = options is MURMUR3
    assert (line["hash"], line["secret"]) == ("murmur3" if is_murmur3 else "siphash", secret)
    assert ("unless somebody chooses keys" in line["promise"]) == is_murmur3
    settings = load_settings(stage.deployment.write_config())
    trial = await tried(settings, 100, connected_to(stage.broker))
    assert ("not tested" in trial.as_text()) == is_murmur3
    assert trial.as_json()["notes"] == trial.notes


@over(Stage)
async def test_a_key_is_digested_once_by_its_filter_and_once_for_what_partitions_share(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch for keys in several partitions digests what it does not know; lists digest every key."""
    rows: list[tuple[bool, int]] = []
    of_column = Hash.of_column

    def counting(self: Hash, keys: Any) -> Any:
        rows.append((self.drawn, len(keys)))
        return of_column(self, keys)

    monkeypatch.setattr(Hash, "of_column", counting)
    await stage.through(range(3000))
    assert sum(count for drawn, count in rows if drawn) == 3000
    assert 3000 <= sum(count for drawn, count in rows if not drawn) < 3030
    rows.clear()
    listed = list_file(tmp_path / "block.list", [b"k3"])
    stage.config["blocklist"] = {"file": str(listed), "on_positive": "drop"}
    await stage.through(range(3000, 5000))
    assert sum(count for drawn, count in rows if not drawn) >= 2000
