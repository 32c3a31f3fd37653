"""The benchmark of formats: each finds the same keys in the same events. What it measures gates nothing here."""

import pytest

from bench import formats


def test_each_format_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It fails by itself if a key is wrong."""
    monkeypatch.setattr(formats, "EVENTS", 50)
    monkeypatch.setattr(formats, "ROUNDS", 2)
    formats.main()
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split()[0] for line in lines] == ["json", "avro", "protobuf"]
