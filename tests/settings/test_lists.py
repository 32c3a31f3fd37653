"""The lists that a configuration names."""

from pathlib import Path

import pytest

from tests.settings.minimal import MINIMAL, problems, read


class TestLists:
    """Lists that are named, and what goes with them."""

    def test_both_are_read_from_their_sections(self, file: Path, tmp_path: Path) -> None:
        """As any option; there are none unless they are named."""
        assert (read(file).allowlist.file, read(file).blocklist.file) == (None, None)
        for name in ("allow.list", "block.list"):
            (tmp_path / name).write_bytes(b"a list")
        sections = "".join(f"{w}list:\n  file: {tmp_path}/{w}.list\n" for w in ("allow", "block"))
        file.write_text(f"{MINIMAL}{sections}")
        settings = read(file, "sink.blocked_topic=blocked")
        assert settings.allowlist.file == tmp_path / "allow.list"
        assert settings.blocklist.file == tmp_path / "block.list"
        assert settings.sink.blocked_topic == "blocked"

    @pytest.mark.parametrize("which", ["allowlist", "blocklist"])
    def test_a_file_that_is_not_there_is_a_problem(self, file: Path, which: str) -> None:
        """`config check` reports it with the other problems, before anything starts."""
        lines = problems(file, f"{which}.file=/nowhere/x.list", "sink.topic=events")
        assert any(
            line.startswith(
                f"--set: {which}.file: cannot be read: No such file or directory; name a file"
            )
            for line in lines
        )
        assert any("sink.topic" in line for line in lines)

    def test_a_store_is_asked_only_if_that_is_said(self, file: Path, listed: str) -> None:
        """Its place may begin with a home directory."""
        settings = read(file, listed, "blocklist.on_positive=verify", "blocklist.exact=~/x.exact")
        assert settings.blocklist.exact == Path.home() / "x.exact"
        assert read(file, listed).blocklist.on_positive == "drop"
