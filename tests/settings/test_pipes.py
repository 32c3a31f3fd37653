"""A pipe at an option that names a file: a secret is read from it once, and what is watched must be a regular file."""

import os
from pathlib import Path

import pytest

from streamdedup.named_files import read_short
from streamdedup.settings import hash_key_in
from tests.fifos import ends, fifo, writing
from tests.settings.minimal import MINIMAL, problems, read

DIGITS = "00112233445566778899aabbccddeeff"
SASL = (
    "kafka.security_protocol=SASL_SSL",
    "kafka.sasl_mechanism=PLAIN",
    "kafka.sasl_plain_username=me",
)
SECRETS = {
    "filter.hash_key_file": ("filter.hash_key", ()),
    "kafka.sasl_plain_password_file": ("kafka.sasl_plain_password", SASL),
    "kafka.ssl_password_file": (
        "kafka.ssl_password",
        ("kafka.security_protocol=SSL", "kafka.ssl_certfile=PEM", "kafka.ssl_keyfile=PEM"),
    ),
}
WATCHED = (
    "allowlist.file",
    "blocklist.file",
    "kafka.ssl_cafile",
    "kafka.ssl_certfile",
    "kafka.ssl_keyfile",
)


def beside(option: str, pem: Path) -> list[str]:
    """Return what else must be set."""
    return [text.replace("PEM", str(pem)) for text in SECRETS[option][1]]


@pytest.mark.parametrize("option", WATCHED)
def test_what_is_watched_is_refused_if_it_is_a_pipe(
    file: Path, tmp_path: Path, option: str
) -> None:
    """At once, by the name of the option, though nobody writes to it."""
    pipe = fifo(tmp_path / "pipe")
    [line] = [
        line
        for line in ends(lambda: problems(file, f"{option}={pipe}"), pipe)
        if "a regular file" in line
    ]
    assert line.startswith(f"--set: {option}: cannot be read: it is a pipe (FIFO), and must be a")


@pytest.mark.parametrize("option", sorted(SECRETS))
def test_a_secret_is_read_from_a_pipe_once(
    file: Path, pem: Path, tmp_path: Path, option: str
) -> None:
    """Who writes to it is asked once, and is not waited for again."""
    pipe = fifo(tmp_path / "pipe")
    writer = writing(pipe, f"{DIGITS}\n".encode())
    settings = ends(lambda: read(file, *beside(option, pem), f"{option}={pipe}"), pipe)
    section, name = SECRETS[option][0].split(".")
    assert getattr(getattr(settings, section), name).get_secret_value() == DIGITS
    writer.join(5)
    assert not writer.is_alive()


def test_a_secret_from_a_pipe_is_read_once_also_if_another_option_is_wrong(
    file: Path, tmp_path: Path
) -> None:
    """The configuration is then checked twice, and only the other option is reported."""
    pipe = fifo(tmp_path / "pipe")
    writing(pipe, DIGITS.encode())
    given = [f"filter.hash_key_file={pipe}", "filter.error_rate=2"]
    [line] = ends(lambda: problems(file, *given), pipe)
    assert line.startswith("--set: filter.error_rate")


@pytest.mark.parametrize("option", sorted(SECRETS))
def test_a_secret_that_nobody_writes_is_an_error_that_names_its_option(
    file: Path, pem: Path, tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a deadline, and once, whatever else is checked again."""
    monkeypatch.setattr(read_short, "__defaults__", (0.1,))
    pipe = fifo(tmp_path / "pipe")
    lines = ends(lambda: problems(file, *beside(option, pem), f"{option}={pipe}"), pipe)
    [line] = [line for line in lines if "nobody writes" in line]
    assert SECRETS[option][0] in line
    assert "it is a pipe to which nobody writes within 0.1 s; name a file, or a pipe" in line


def test_a_configuration_may_be_a_pipe() -> None:
    """As in `-c <(envsubst <dedup.yaml)`; it is read once."""
    out, into = os.pipe()
    os.write(into, MINIMAL.encode())
    os.close(into)
    assert ends(lambda: read(Path(f"/dev/fd/{out}"))).kafka.group_id == "dedup"
    os.close(out)


def test_a_configuration_that_nobody_writes_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a deadline; it names the file and the option."""
    monkeypatch.setattr(read_short, "__defaults__", (0.1,))
    pipe = fifo(tmp_path / "pipe")
    with pytest.raises(Exception, match=r"pipe: cannot be read: .* name an existing file with -c"):
        ends(lambda: read(pipe), pipe)


def test_a_secret_on_the_command_line_of_lists_is_read_once(tmp_path: Path) -> None:
    """`lists build --hash-key-file <(...)` takes it as a worker does."""
    pipe = fifo(tmp_path / "pipe")
    writing(pipe, DIGITS.encode())
    assert ends(lambda: hash_key_in(str(pipe)), pipe) == bytes.fromhex(DIGITS)
