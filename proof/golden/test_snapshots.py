"""Snapshots that workers wrote are written alike by every later worker; the records say what is found in them."""

import pytest

from proof.golden.deployment import DIRECTORY, KINDS, Kind, snapshot_of
from proof.golden.test_filters_and_lists import SIZE_BYTES_MAX, header_of, made_by


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_worker_writes_the_same_snapshot_to_the_byte(kind: Kind) -> None:
    """Label, identity and fingerprint included, apart from when and by whom it was written, and fields added later."""
    golden = kind.path.read_bytes()
    assert made_by(snapshot_of(kind), header_of(golden)) == golden


def test_each_snapshot_has_its_kind_and_none_is_large() -> None:
    """Whoever adds a kind adds a line to KINDS."""
    found = {path.name: path.stat().st_size for path in DIRECTORY.iterdir()}
    assert set(found) == {kind.path.name for kind in KINDS}
    assert max(found.values()) <= SIZE_BYTES_MAX


def test_every_kind_of_the_configuration_has_a_snapshot() -> None:
    """But for `none`, which saves nothing."""
    from proof.golden.test_records import recorded

    options = recorded("configuration-schema")["properties"]["filter"]["anyOf"][0]["properties"]
    assert {*options["kind"]["enum"]} == {"none", *(kind.name.split("-")[0] for kind in KINDS)}
