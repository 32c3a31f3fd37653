"""`filter: null`: a worker that only screens."""

from pathlib import Path

import yaml

from streamdedup.settings import show
from streamdedup.settings.tree import sections
from tests.settings.minimal import MINIMAL, problems, read

ONLY_SCREENS = MINIMAL.replace("filter:\n  capacity: 1000\n", "filter: null\n").replace(
    "snapshot:\n  directory: var/snapshots\n", ""
)


class TestNoFilter:
    """`filter: null`: a worker that only screens."""

    def test_it_needs_no_capacity_and_no_snapshots(self, file: Path, listed: str) -> None:
        """Neither is used."""
        file.write_text(ONLY_SCREENS)
        settings = read(file, listed)
        assert settings.filter.kind == "none"
        assert not settings.filter.remembers
        assert settings.filter.hash == "siphash"
        assert "kind: none  # " in show(settings)

    def test_what_is_shown_can_be_read_again(self, file: Path, listed: str, tmp_path: Path) -> None:
        """With the same meaning."""
        file.write_text(ONLY_SCREENS)
        again = tmp_path / "again.yaml"
        again.write_text(show(read(file, listed)))
        assert read(again).filter == read(file, listed).filter

    def test_what_is_not_in_force_is_not_shown(self, file: Path, listed: str) -> None:
        """Neither the size of a filter that is not there, nor where it would be saved."""
        file.write_text(ONLY_SCREENS)
        tree = yaml.safe_load(show(read(file, listed, "snapshot.keep=5")))
        assert tree["filter"] == {
            "kind": "none",
            "hash": "siphash",
            "hash_key_file": None,
            "hash_key": None,
        }
        assert "snapshot" not in tree
        assert tree.keys() == sections().keys() - {"snapshot"}

    def test_a_section_that_is_only_empty_is_a_filter_without_a_capacity(
        self, file: Path, listed: str
    ) -> None:
        """Commenting out its options does not ask for no filter."""
        file.write_text(MINIMAL.replace("  capacity: 1000\n", ""))
        (line,) = problems(file, listed)
        assert "filter.capacity: is required" in line

    def test_without_a_block_list_nothing_is_left_to_do(self, file: Path) -> None:
        """Every event would pass: the problem names the line of the `null`."""
        file.write_text(ONLY_SCREENS)
        (line,) = problems(file)
        assert line.startswith("dedup.yaml:8: filter.kind = 'none': leaves nothing to do without")

    def test_a_later_null_takes_back_the_filter_but_not_the_hash(
        self, file: Path, listed: str
    ) -> None:
        """What the file says of the filter is void; lists are asked for digests of the same hash."""
        digits = "00112233445566778899aabbccddeeff"
        file.write_text(
            MINIMAL.replace(
                "capacity: 1000", "{capacity: 1000, error_rate: 0.1, hash: siphash}"
            ).replace("filter:\n  ", "filter: ")
        )
        settings = read(file, listed, "filter=null", FILTER__HASH_KEY=digits)
        assert (settings.filter.kind, settings.filter.hash) == ("none", "siphash")
        assert settings.filter.hash_key_bytes == bytes.fromhex(digits)

    def test_a_later_kind_is_a_filter_again(self, file: Path, listed: str) -> None:
        """Leaf by leaf, the later wins."""
        file.write_text(ONLY_SCREENS)
        settings = read(
            file, listed, "filter.kind=exact", "filter.capacity=5", "snapshot.directory=there"
        )
        assert (settings.filter.kind, settings.filter.capacity) == ("exact", 5)

    def test_a_later_kind_lacks_what_the_null_took_back(self, file: Path, listed: str) -> None:
        """The capacity in the file is void: the problem names the place of the `null`."""
        (line,) = problems(file, listed, "filter=null", "filter.kind=exact")
        assert line.startswith("--set: filter.capacity: is required")
