"""A secret that an operator gives to the wrong option, or in the place of a name, is not repeated by any message."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamdedup.errors import ConfigError
from streamdedup.kafka.client.connection import client_arguments
from streamdedup.kafka.options import KafkaOptions
from streamdedup.settings.tree import LEAVES, PASS_THROUGH, SECRETS, KeyPath
from tests.rows import every
from tests.settings.minimal import MINIMAL, problems, read

SECRET = "hunter2"  # noqa: S105 - the one that these tests look for
FORMS = [
    SECRET,
    f"user:{SECRET}@host",
    f"host:9092,user:{SECRET}@other:9092",
    f"1{SECRET}",
    f"!{SECRET} x",
    f"!{SECRET}!x",
    f"&{SECRET} x",
    f"*{SECRET}",
    f"{{{SECRET}: x}}",
    f"[{SECRET}, [{SECRET}]]",
    f"[{SECRET}",
    f"'{SECRET}",
    f"%{SECRET}",
    f"a: {SECRET}: b",
    f"/{SECRET}/~",
]
OTHERS = [
    "12345678901234567890123456789012",
    "0123456789abcdef0123456789abcdef",
    f"12{SECRET}",
    "5SECRET",
    "aHVudGVyMi1odW50ZXIyCg==",
]
LEAVES_AT_ONCE = [
    *(leaf for leaf in LEAVES if leaf not in SECRETS | PASS_THROUGH),
    ("kafka", "consumer", "session_timeout_ms"),
    ("kafka", "consumer", "fetch_max_bytes"),
    ("kafka", "producer", "retry_backoff_ms"),
]
LIKE_NUMBERS = [
    *("filter.capacity", "filter.kind", "filter.refresh", "kafka.ssl_cafile"),
    *("kafka.bootstrap_servers", "sink.topic"),
    *("kafka.consumer.fetch_max_bytes", "kafka.consumer.check_crcs"),
]
WHOLES = [("kafka", "consumer"), ("kafka", "producer"), ("kafka",), ("filter",)]
NAMES = [
    SECRET,
    f"{SECRET}==",
    f"{SECRET}=x",
    f"kafka.{SECRET}=x",
    f"kafka.group_id.{SECRET}!=x",
    f"kafka.consumer.{SECRET}=x",
    f"kafka.consumer={{{SECRET}: x}}",
    f"kafka.consumer={{session_timeout_ms {SECRET}: x}}",
    f"kafka={{sasl_plain_password {SECRET}: }}",
    f"kafka={{{SECRET}: x, {SECRET}: y}}",
    f"kafka.sasl_plain_password{SECRET}",
    f"{SECRET} kafka.group_id=x",
]


def tree_of(paths: Iterable[KeyPath]) -> dict[str, Any]:
    """The smallest configuration, in which a mark stands for the value of each path."""
    tree: dict[str, Any] = yaml.safe_load(MINIMAL)
    for *above, name in paths:
        at = tree
        for part in above:
            at = at.setdefault(part, {})
        at[name] = "MARK"
    return tree


def messages(file: Path, paths: Sequence[KeyPath], form: str) -> Iterator[str]:
    """What is said of a value in the file, in the environment and on the command line, if anything is."""
    text = yaml.safe_dump(tree_of(paths)).replace("MARK", form)
    overrides = [f"{'.'.join(path)}={form}" for path in paths]
    environ = {"__".join(path).upper(): form for path in paths}
    yield from refusals(file, text)
    yield from refusals(file, MINIMAL, *overrides)
    yield from refusals(file, MINIMAL, **environ)


def refusals(file: Path, text: str, *overrides: str, **environ: str) -> Iterator[str]:
    """The message, if there is one."""
    file.write_text(text)
    try:
        read(file, *overrides, **environ)
    except ConfigError as error:
        yield str(error)


def is_not_repeated(file: Path, form: str) -> None:
    """Check it of a value that is given to every option at once, and to whole sections."""
    in_file, on_command_line, in_environment = messages(file, LEAVES_AT_ONCE, form)
    assert len(on_command_line.splitlines()) > 40
    assert len(in_environment.splitlines()) > 40
    said = [in_file, on_command_line, in_environment]
    said += [line for path in WHOLES for line in messages(file, [path], form)]
    secret = form if form in OTHERS else SECRET
    assert not [line for line in said if secret in line.replace(str(file), "")]


def test_a_value_that_is_refused_is_not_repeated(file: Path) -> None:
    """Whatever it looks like, whichever option it is given to, and wherever it is written."""
    every([*FORMS[:3], *OTHERS[:2]], partial(is_not_repeated, file))


def test_a_value_that_only_begins_like_a_number_is_not_repeated(file: Path) -> None:
    """In a number, a choice, a path and a text. A topic is wrong if it is the source's, too."""

    def check(row: tuple[str, str]) -> None:
        leaf, other = row
        for said in messages(file, [tuple(leaf.split(".")), ("source", "topic")], other):
            assert leaf in said
            assert other not in said.replace(str(file), "")

    every(product(LIKE_NUMBERS, OTHERS), check)


@pytest.mark.parametrize("secret", ["1234", "true", "none"])
@pytest.mark.parametrize(
    "name",
    [
        "sasl_plain_password",
        "sasl_plain_password_file",
        "ssl_password_file",
        "consumer.sasl_plain_password",
        "producer.ssl_key_password",
        "sasl_password",
    ],
)
def test_what_is_written_as_a_secret_is_never_repeated(file: Path, name: str, secret: str) -> None:
    """However plain it looks, and if its option does not exist."""
    said = problems(file, f"kafka.{name}={secret}")
    said += problems(file, **{f"KAFKA__{name.replace('.', '__').upper()}": secret})
    assert len(said) == 2
    for line in said:
        assert not re.search(rf"= |'{secret}'|\b1234\b", line.replace(" = ********", ""))


@pytest.mark.parametrize("override", NAMES)
def test_what_stands_in_the_place_of_a_name_is_not_repeated(file: Path, override: str) -> None:
    """Only the names of options, and what resembles one, are."""
    assert SECRET not in "".join(problems(file, override))


@pytest.mark.parametrize(
    "name", [SECRET, f"kafka.{SECRET}", f"'sasl_plain_password {SECRET}'", f"kafka {SECRET}"]
)
def test_a_name_in_a_file_that_resembles_no_option_is_not_repeated(file: Path, name: str) -> None:
    """Its line is named, which suffices to find it."""
    file.write_text(f"{MINIMAL}{name}: x\n")
    (line,) = problems(file)
    assert line.startswith("dedup.yaml:14: ")
    assert SECRET not in line
    file.write_text(MINIMAL.replace("source:", f"  {name}: x\n  {name}: y\nsource:"))
    for line in problems(file):
        assert SECRET not in line


def test_a_value_that_contradicts_another_option_is_not_repeated(file: Path) -> None:
    """It was accepted by its own option; it may be a secret all the same."""
    (line,) = problems(file, f"kafka.sasl_plain_username={SECRET}")
    assert "kafka.sasl_plain_username: means nothing with kafka.security_protocol" in line
    assert SECRET not in line


@pytest.mark.parametrize(
    "provider", [f"user:{SECRET}", f"{SECRET}:user", f"os.{SECRET}:x", f"os:{SECRET}"]
)
async def test_a_provider_of_tokens_that_does_not_exist_is_not_repeated(provider: str) -> None:
    """A user and a password look like a module and a factory, so it is tried first."""
    options = KafkaOptions(
        bootstrap_servers="localhost:9092",
        group_id="dedup",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=provider,
    )
    with pytest.raises(ConfigError) as caught:
        await client_arguments(options)
    assert str(caught.value).startswith("kafka.sasl_oauth_token_provider: ")
    assert SECRET not in str(caught.value)
