"""Secrets, and the options by which Kafka is reached securely."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from streamdedup.secret import is_loopback
from streamdedup.settings import show
from streamdedup.settings.tree import SECRETS
from streamdedup.worker.startup import in_clear
from tests.rows import every
from tests.settings.minimal import MINIMAL, problems, read, refusal


class TestSecurity:
    """Secrets come from the environment or from files, and are shown nowhere."""

    SASL = ("kafka.security_protocol=SASL_SSL", "kafka.sasl_plain_username=me")

    @pytest.mark.parametrize("name", ["sasl_plain_password", "ssl_password"])
    def test_a_secret_written_in_the_file_or_on_the_command_line_is_refused(
        self, file: Path, name: str
    ) -> None:
        """The message says where it belongs and does not repeat it."""
        file.write_text(MINIMAL.replace("source:", f"  {name}: hunter2\nsource:"))
        lines = problems(file, f"kafka.{name}=hunter3")
        belongs = (
            f"kafka.{name} = ********: a secret must not be written here; set "
            f"STREAMDEDUP_KAFKA__{name.upper()} in the environment, or kafka.{name}_file to the "
            "path of a file that holds it"
        )
        assert lines == [f"dedup.yaml:4: {belongs}", f"--set: {belongs}"]

    def test_a_secret_in_a_broken_override_is_not_repeated(self, file: Path) -> None:
        """If the `=` is missing, or the value is not YAML, the message has only the name and the right place for it."""

        def check(row: tuple[str, str]) -> None:
            leaf, written = row
            (line,) = problems(file, f"{leaf}{written}")
            assert line.startswith(f"--set: {leaf} = ********: a secret must not be written here; ")
            assert "hunter2" not in line

        broken = [" hunter2", ": hunter2", " hunter2==", "=!hunter2!x", ""]
        every(product(map(".".join, sorted(SECRETS)), broken), check)

    def test_a_broken_file_does_not_quote_a_tag(self, file: Path) -> None:
        """A secret may begin like a tag, and is not repeated."""
        file.write_text(MINIMAL.replace("source:", "  ssl_password: !hunter2!x\nsource:"))
        message = refusal(file)
        assert "dedup.yaml:4: is not YAML: a tag with an unknown handle" in message
        assert "hunter2" not in message

    def test_a_secret_from_the_environment_is_used_and_never_shown(self, file: Path) -> None:
        """The password is there for the client, and masked in `show` and `repr`."""
        settings = read(
            file,
            *self.SASL,
            "kafka.sasl_mechanism=SCRAM-SHA-512",
            KAFKA__SASL_PLAIN_PASSWORD="hunter2",  # noqa: S106
        )
        assert settings.kafka.sasl_plain_password is not None
        assert settings.kafka.sasl_plain_password.get_secret_value() == "hunter2"
        shown = show(settings)
        line = "  sasl_plain_password: '********'  # STREAMDEDUP_KAFKA__SASL_PLAIN_PASSWORD\n"
        assert line in shown
        assert "hunter2" not in shown + repr(settings) + str(settings)

    @pytest.mark.parametrize("end", ["", "\n", "\r\n"])
    def test_a_secret_is_read_from_its_file(self, file: Path, tmp_path: Path, end: str) -> None:
        """One line end at the end is not part of the secret; all else is."""
        secret = tmp_path / "password"
        secret.write_bytes(f" hunter2 {end}".encode())
        settings = read(
            file,
            *self.SASL,
            "kafka.sasl_mechanism=PLAIN",
            f"kafka.sasl_plain_password_file={secret}",
        )
        assert settings.kafka.sasl_plain_password is not None
        assert settings.kafka.sasl_plain_password.get_secret_value() == " hunter2 "
        assert "hunter2" not in show(settings) + repr(settings)

    @pytest.mark.parametrize("content", [b"", b"\n", b"\xff"])
    def test_a_file_without_a_secret_is_refused(
        self, file: Path, tmp_path: Path, content: bytes
    ) -> None:
        """An empty or unreadable secret is a mistake, not a password."""
        secret = tmp_path / "password"
        secret.write_bytes(content)
        (line,) = problems(
            file,
            *self.SASL,
            "kafka.sasl_mechanism=PLAIN",
            f"kafka.sasl_plain_password_file={secret}",
        )
        assert "kafka.sasl_plain_password: cannot be read from" in line

    def test_errors_about_other_leaves_show_no_secret(self, file: Path) -> None:
        """A secret appears in no message, not even in one about the leaf beside it."""
        message = refusal(
            file,
            "filter.error_rate=2",
            KAFKA__SASL_PLAIN_PASSWORD="hunter2",  # noqa: S106
        )
        assert "kafka.sasl_plain_password: means nothing with" in message
        message += refusal(file, KAFKA__SASL_PASSWORD="hunter2")  # noqa: S106
        assert "did you mean STREAMDEDUP_KAFKA__SASL_PLAIN_PASSWORD" in message
        assert "hunter2" not in message

    @pytest.mark.parametrize(
        ("overrides", "expected"),
        [
            (
                ["kafka.security_protocol=SASL_SSL"],
                ["kafka.sasl_mechanism: is required with kafka.security_protocol: SASL_SSL"],
            ),
            (
                ["kafka.security_protocol=SASL_SSL", "kafka.sasl_mechanism=PLAIN"],
                [
                    "kafka.sasl_plain_password: is required with kafka.sasl_mechanism: PLAIN; set "
                    "STREAMDEDUP_KAFKA__SASL_PLAIN_PASSWORD or kafka.sasl_plain_password_file",
                    "kafka.sasl_plain_username: is required with kafka.sasl_mechanism: PLAIN",
                ],
            ),
            (
                ["kafka.security_protocol=SASL_PLAINTEXT", "kafka.sasl_mechanism=OAUTHBEARER"],
                ["kafka.sasl_oauth_token_provider: is required with"],
            ),
            (
                [
                    *SASL,
                    "kafka.sasl_mechanism=OAUTHBEARER",
                    "kafka.sasl_oauth_token_provider=my.tokens:make",
                ],
                ["kafka.sasl_plain_username: means nothing with kafka.sasl_mechanism"],
            ),
            (
                ["kafka.sasl_plain_username=me"],
                [
                    "means nothing with kafka.security_protocol: PLAINTEXT; unset it, or set "
                    "kafka.security_protocol to SASL_SSL or SASL_PLAINTEXT"
                ],
            ),
            (
                ["kafka.ssl_cafile=PEM"],
                ["kafka.ssl_cafile: means nothing with kafka.security_protocol: PLAIN"],
            ),
            (
                ["kafka.ssl_check_hostname=no"],
                ["kafka.ssl_check_hostname = 'no': means nothing with"],
            ),
            (
                ["kafka.security_protocol=SSL", "kafka.ssl_certfile=PEM"],
                ["kafka.ssl_keyfile: is required with kafka.ssl_certfile"],
            ),
            (
                ["kafka.security_protocol=SSL", "kafka.ssl_keyfile=PEM"],
                ["kafka.ssl_certfile: is required with kafka.ssl_keyfile"],
            ),
            (
                ["kafka.security_protocol=SSL", "kafka.ssl_password_file=PEM"],
                ["kafka.ssl_password_file: means nothing without kafka.ssl_keyfile"],
            ),
        ],
    )
    def test_security_must_be_complete_and_to_the_point(
        self, file: Path, pem: Path, overrides: Sequence[str], expected: Sequence[str]
    ) -> None:
        """What a protocol needs must be there, and what it does not use must not."""
        lines = problems(file, *(text.replace("PEM", str(pem)) for text in overrides))
        assert len(lines) == len(expected)
        for line, part in zip(lines, expected, strict=True):
            assert part in line
            assert str(pem) not in line

    def test_a_secret_is_set_once(self, file: Path, pem: Path) -> None:
        """With both the variable and the file, nobody could tell which is used."""
        (line,) = problems(
            file,
            *self.SASL,
            "kafka.sasl_mechanism=PLAIN",
            f"kafka.sasl_plain_password_file={pem}",
            KAFKA__SASL_PLAIN_PASSWORD="x",  # noqa: S106
        )
        assert "is set, and so is kafka.sasl_plain_password; set one of the two" in line

    def test_the_key_of_a_hash_is_32_hexadecimal_digits(self, file: Path, tmp_path: Path) -> None:
        """From the environment or its file, 16 bytes; they are shown nowhere."""
        digits = "00112233445566778899AAbbccddeeff"
        path = tmp_path / "hash-key"
        path.write_text(f"{digits}\n")
        from_file = read(file, "filter.hash=siphash", f"filter.hash_key_file={path}")
        settings = read(file, "filter.hash=siphash", FILTER__HASH_KEY=digits)
        assert settings.filter.hash_key_bytes == bytes.fromhex(digits)
        assert from_file.filter.hash_key_bytes == bytes.fromhex(digits)
        shown = show(settings) + show(from_file) + repr(settings) + repr(from_file)
        assert "  hash_key: '********'  # STREAMDEDUP_FILTER__HASH_KEY\n" in shown
        assert digits not in shown
        assert read(file).filter.hash_key_bytes == b""

    @pytest.mark.parametrize(
        "wrong",
        ["0123456789abcdef" * 2 + "0", "0123456789abcdeg" * 2, "hunter2"],
        ids=["long", "no digits", "short"],
    )
    def test_a_key_of_a_hash_that_is_none_is_not_repeated(
        self, file: Path, tmp_path: Path, wrong: str
    ) -> None:
        """If it has another length or other characters, the message says how to make one, and does not repeat it."""
        path = tmp_path / "hash-key"
        path.write_text(wrong)
        (line,) = problems(file, "filter.hash=siphash", FILTER__HASH_KEY=wrong)
        assert "filter.hash_key: must be 32 hexadecimal digits (16 random" in line
        assert "as from: openssl rand -hex 16" in line
        (other,) = problems(file, "filter.hash=siphash", f"filter.hash_key_file={path}")
        assert "; hash-key holds something else" in other
        assert wrong not in line + other

    def test_a_key_without_its_hash_is_refused(self, file: Path, pem: Path) -> None:
        """A key that is not used means that the hash was forgotten."""
        digits = "0123456789abcdef" * 2
        pem.write_text(digits)
        murmur3 = "filter.hash=murmur3"
        (line,) = problems(file, murmur3, FILTER__HASH_KEY=digits)
        assert "filter.hash_key: means nothing with filter.hash: murmur3; unset" in line
        (line,) = problems(file, murmur3, f"filter.hash_key_file={pem}")
        assert "filter.hash_key_file: " in line
        assert "set filter.hash: siphash" in line

    def test_complete_security_is_taken(self, file: Path, pem: Path) -> None:
        """TLS with a client certificate, and OAUTHBEARER with a provider, are accepted."""
        settings = read(
            file,
            "kafka.security_protocol=SASL_SSL",
            "kafka.sasl_mechanism=OAUTHBEARER",
            "kafka.sasl_oauth_token_provider=my.tokens:make",
            f"kafka.ssl_cafile={pem}",
            f"kafka.ssl_certfile={pem}",
            f"kafka.ssl_keyfile={pem}",
            "kafka.ssl_check_hostname=false",
            KAFKA__SSL_PASSWORD="x",  # noqa: S106
        )
        assert settings.kafka.ssl_keyfile == pem
        assert settings.kafka.ssl_check_hostname is False


class TestInClear:
    """Credentials go to another machine only encrypted, unless the configuration says otherwise."""

    REMOTE = (
        "broker.example:9092",
        "localhost:9092,broker.example:9092",
        "10.0.0.1:9092",
        "[2001:db8::1]:9092",
        "localhost.example:9092",
        "127.0.0.1.example:9092",
        "[::ffff:10.0.0.1]:9092",
        "0.0.0.0:9092",
    )
    LOCAL = (
        "localhost:9092",
        "127.0.0.1:1,127.9.9.9:2,LocalHost.:3",
        "[::1]:9092",
        "[::ffff:127.0.0.1]:1",
    )
    MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    PASSWORD = "hunter2"  # noqa: S105

    def _sasl(self, mechanism: str, servers: str) -> tuple[str, ...]:
        who = ("kafka.sasl_plain_username=me",)
        if mechanism == "OAUTHBEARER":
            who = ("kafka.sasl_oauth_token_provider=my.tokens:make",)
        return (
            "kafka.security_protocol=SASL_PLAINTEXT",
            f"kafka.sasl_mechanism={mechanism}",
            f"kafka.bootstrap_servers='{servers}'",
            *who,
        )

    def _password(self, mechanism: str) -> dict[str, str]:
        return {} if mechanism == "OAUTHBEARER" else {"KAFKA__SASL_PLAIN_PASSWORD": self.PASSWORD}

    def test_sasl_without_encryption_is_refused(self, file: Path) -> None:
        """For each mechanism, if any of the brokers is elsewhere. If it is allowed, the start says so."""

        def check(row: tuple[str, str]) -> None:
            given, secret = self._sasl(*row), self._password(row[0])
            (line,) = problems(file, *given, **secret)
            assert line == (
                "--set: kafka.security_protocol = 'SASL_PLAINTEXT': sends credentials over the network in clear; set"
                " kafka.security_protocol: SASL_SSL, or kafka.allow_plaintext: true if nobody can listen there"
            )
            allowed = read(file, *given, "kafka.allow_plaintext=true", **secret)
            assert in_clear(allowed) == {
                "in_clear": "credentials are sent in clear to the brokers (kafka.allow_plaintext)"
            }

        every(product(self.MECHANISMS, self.REMOTE), check)

    def test_on_this_machine_nobody_listens(self, file: Path) -> None:
        """Nothing needs to be allowed, and there is nothing to repeat."""

        def check(row: tuple[str, str]) -> None:
            tree = read(file, *self._sasl(*row), **self._password(row[0]))
            assert in_clear(tree) == {}

        every(product(self.MECHANISMS, self.LOCAL), check)

    CREDENTIALS = (
        (("kafka.schema_registry.basic_auth_user=me",), "BASIC_AUTH_PASSWORD"),
        ((), "BEARER_TOKEN"),
    )

    @pytest.mark.parametrize(
        "url",
        [
            "http://registry",
            "http://10.1.2.3:8081/a",
            "http://localhost.example",
            "HTTP://[fe80::1]",
        ],
    )
    @pytest.mark.parametrize(("user", "secret"), CREDENTIALS)
    def test_credentials_for_a_registry_without_encryption_are_refused(
        self, file: Path, url: str, user: tuple[str, ...], secret: str
    ) -> None:
        """Of both sorts. Without credentials, and with https, there is nothing to refuse."""
        given = ("key.format=avro", f"kafka.schema_registry.url='{url}'")
        variable = {f"KAFKA__SCHEMA_REGISTRY__{secret}": self.PASSWORD}
        (line,) = problems(file, *given, *user, **variable)
        assert "kafka.schema_registry.url" in line
        assert (
            "sends the credentials over the network in clear; set an address of https, or" in line
        )
        assert self.PASSWORD not in line
        allowed = read(
            file, *given, *user, "kafka.schema_registry.allow_plaintext=true", **variable
        )
        assert "kafka.schema_registry.allow_plaintext" in in_clear(allowed)["in_clear"]
        assert in_clear(read(file, *given)) == {}
        encrypted = ("key.format=avro", "kafka.schema_registry.url=https://registry")
        assert in_clear(read(file, *encrypted, *user, **variable)) == {}

    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
    @pytest.mark.parametrize(("user", "secret"), CREDENTIALS)
    def test_a_registry_on_this_machine_may_have_them(
        self, file: Path, host: str, user: tuple[str, ...], secret: str
    ) -> None:
        """So do those of tests, and of a proxy beside the worker."""
        given = ("key.format=avro", f"kafka.schema_registry.url='http://{host}:8081'", *user)
        assert in_clear(read(file, *given, **{f"KAFKA__SCHEMA_REGISTRY__{secret}": "x"})) == {}

    @pytest.mark.parametrize(
        "token",
        [
            "a\nX-Evil: 1",
            "a\r\nb",
            "a b",
            "a\tb",
            "\na",
            "tök",
            "a\0b",
            "a\x7f",
            "a\u2028b",
            " token",
            "a\n\n",
        ],
    )
    def test_a_token_that_is_no_word_of_a_header_is_refused(
        self, file: Path, tmp_path: Path, token: str
    ) -> None:
        """From a file, by its option, and not at the first request. It is not repeated."""
        (tmp_path / "token").write_text(token)
        given = ("key.format=avro", "kafka.schema_registry.url=https://registry")
        message = refusal(file, *given, f"kafka.schema_registry.bearer_token_file={tmp_path}/token")
        assert "bearer_token" in message
        assert "must be one line of visible ASCII characters" in message
        assert token not in message
        if "\0" not in token:
            assert "must be one line" in refusal(
                file, *given, KAFKA__SCHEMA_REGISTRY__BEARER_TOKEN=token
            )

    def test_one_line_end_after_a_token_is_no_part_of_it(self, file: Path, tmp_path: Path) -> None:
        """Editors write one."""
        given = ("key.format=avro", "kafka.schema_registry.url=https://registry")
        for end in ("", "\n", "\r\n"):
            (tmp_path / "token").write_text(f"eyJ.a-b_c~d+/=={end}")
            tree = read(file, *given, f"kafka.schema_registry.bearer_token_file={tmp_path}/token")
            registry = tree.kafka.schema_registry
            assert registry
            assert registry.bearer_token
            assert registry.bearer_token.get_secret_value() == "eyJ.a-b_c~d+/=="

    def test_a_name_is_not_asked_for_its_address(self) -> None:
        """Whoever answers for names would decide."""
        assert not is_loopback("lo.example")
        assert not is_loopback("")
        assert not is_loopback("2130706433")
