"""What `show` prints, and the examples that ship."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from streamdedup.keys.options import URL_SWITCHES
from streamdedup.settings import load, show
from streamdedup.settings.stages import max_skew_ms
from tests.settings.minimal import ROOT, leaves, read


class TestShown:
    """What is effective can be seen, edited with help, and looked up."""

    def test_show_names_the_origin_of_each_value(self, file: Path) -> None:
        """File and line, variable, command line, or default."""
        overrides = ["snapshot.keep=5", "kafka.consumer.client_rack=größe"]
        shown = show(read(file, *overrides, SINK__COMPRESSION="zstd"))
        assert "  consumer:\n    client_rack: größe  # --set\n" in shown
        assert f"  group_id: dedup  # {file}:3\n" in shown
        assert "  compression: zstd  # STREAMDEDUP_SINK__COMPRESSION\n" in shown
        assert "  keep: 5  # --set\n" in shown
        assert "  error_rate: 1e-06  # default\n" in shown

    def test_what_is_shown_can_be_read_again(self, file: Path, tmp_path: Path) -> None:
        """The shown tree is a configuration with the same effect."""
        settings = read(
            file,
            "kafka.consumer={session_timeout_ms: 6s, client_rack: '007'}",
            "key.field=null",
            "key.parts=[{header: tenant}, {field: ['#x: y', /b.c]}]",
            "sink.topic='0123'",
            "kafka.client_id='null'",
            "delivery.drain_s=1.5s",
        )
        again = tmp_path / "again.yaml"
        again.write_text(show(settings))
        assert read(again).model_dump() == settings.model_dump()

    def test_a_time_is_shown_with_its_unit(self, file: Path, tmp_path: Path) -> None:
        """Where a bare number would be refused, what is shown has a unit, and is read again."""
        settings = read(
            file, "filter.kind=window", "filter.retention=36h", "filter.max_jump=1500ms"
        )
        shown, again = show(settings), tmp_path / "again.yaml"
        assert "  retention: 36h  # --set\n" in shown
        assert "  max_jump: 1500ms  # --set\n" in shown
        again.write_text(shown)
        assert read(again).filter == settings.filter

    @pytest.mark.parametrize(
        ("overrides", "line"),
        [
            (["filter.retention=7d"], "max_skew: 21h  # default: an eighth of filter.retention"),
            (["filter.retention=7d", "source.repartition.max_skew=1h"], "max_skew: 1h  # --set"),
            (["filter.retention=null"], "max_skew: null  # default"),
        ],
    )
    def test_the_skew_that_holds_is_shown(
        self, file: Path, tmp_path: Path, overrides: list[str], line: str
    ) -> None:
        """An eighth of the window unless it is set; without a time there is none. What is shown has that effect."""
        repartition = "source.repartition={topic: by-key, partitions: 12}"
        settings = read(file, "filter.kind=window", repartition, *overrides)
        shown, again = show(settings), tmp_path / "again.yaml"
        assert f"    {line}\n" in shown
        again.write_text(shown)
        assert max_skew_ms(read(again)) == max_skew_ms(settings)

    @pytest.mark.parametrize("name", ["dedup", "demo"])
    def test_the_examples_are_right(self, name: str) -> None:
        """The files that ship are accepted as they are."""
        settings = load(ROOT / "config" / f"{name}.yaml", environ={})
        guarantee = {"dedup": "exactly_once", "demo": "at_least_once"}[name]
        assert settings.delivery.guarantee == guarantee

    def test_the_example_names_every_option_but_the_rare_ones(self) -> None:
        """dedup.yaml shows every leaf, as a value or in a comment, but for the rarely needed."""
        text = (ROOT / "config" / "dedup.yaml").read_text()
        missing = {
            f"{section}.{name}"
            for section, name, _ in leaves()
            if not re.search(
                rf"^{'  ' * (name.count('.') + 1)}(# )?{name.rpartition('.')[2]}: ",
                text,
                re.MULTILINE,
            )
        }
        assert missing == {
            "kafka.client_id",
            "kafka.ssl_check_hostname",
            "kafka.ssl_password_file",
            "kafka.sasl_oauth_token_provider",
            "kafka.allow_plaintext",
            "kafka.schema_registry.allow_plaintext",
            *(f"key.email_{rule}" for rule in ("preset", "tags", "dots", "aliases")),
            *(f"key.url_{rule}" for rule in (*URL_SWITCHES, "ignore")),
        }

    def test_reading_settings_imports_nothing_heavy(self, file: Path) -> None:
        """A command that only checks a file starts fast: no numba, numpy or aiokafka."""
        code = (
            "import sys, pathlib; from streamdedup.settings import load, schema, show; "
            "show(load(pathlib.Path(sys.argv[1]), environ={})); schema(); "
            "print(*{'numba', 'numpy', 'aiokafka'} & set(sys.modules))"
        )
        run = subprocess.run(
            [sys.executable, "-c", code, str(file)], check=True, capture_output=True, text=True
        )
        assert run.stdout == "\n"
