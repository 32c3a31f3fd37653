"""The lists that a configuration names."""

from pathlib import Path

import pytest

from tests.settings.minimal import MINIMAL, problems, read


class TestLists:
    """Lists that are named, and what goes with them."""

    def test_there_are_none_unless_they_are_named(self, file: Path) -> None:
        """Both files are optional."""
        settings = read(file)
        assert (settings.allowlist.file, settings.blocklist.file) == (None, None)

    def test_both_are_read_from_their_sections(self, file: Path, tmp_path: Path) -> None:
        """As any option, with a home directory in the path if need be."""
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

    @pytest.mark.parametrize(
        "leaf", ["allowlist.file", "blocklist.control_topic", "sink.blocked_topic"]
    )
    def test_what_goes_with_a_block_list_means_nothing_without(self, file: Path, leaf: str) -> None:
        """An allow list exempts from it, and its topic takes what it blocks."""
        (line,) = problems(file, f"{leaf}={file}" if leaf.endswith("file") else f"{leaf}=blocked")
        assert leaf in line
        assert line.endswith(
            "means nothing without blocklist.file; set blocklist.file, or unset it"
        )

    def test_a_store_is_asked_only_where_there_is_a_list(self, file: Path, listed: str) -> None:
        """And its place means nothing where it is not asked."""
        (line,) = problems(file, "blocklist.on_positive=verify")
        assert "blocklist.on_positive = 'verify': means nothing without blocklist.file" in line
        (line,) = problems(file, listed, "blocklist.exact=/var/lib/x.exact")
        assert "blocklist.exact: means nothing with blocklist.on_pos" in line
        settings = read(file, listed, "blocklist.on_positive=verify", "blocklist.exact=~/x.exact")
        assert settings.blocklist.exact == Path.home() / "x.exact"
        assert read(file, listed).blocklist.on_positive == "drop"

    def test_keys_of_several_fields_are_on_no_list(self, file: Path, listed: str) -> None:
        """A list would never match them, without a word; one field in a list is one."""
        (line,) = problems(file, listed, "key.field=[tenant, id]")
        assert "needs keys of one field, but key.field names several" in line
        assert read(file, listed, "key.field=[id]").blocklist.file
        parts = "key.parts=[{header: tenant}, {field: id}]"
        (line,) = problems(file, listed, "key.field=null", parts)
        assert "needs keys of one field, but key.parts names several" in line
        one = "key.parts=[{field: [id, old]}]"
        assert read(file, listed, "key.field=null", one).blocklist.file
