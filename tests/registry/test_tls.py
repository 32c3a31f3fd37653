"""Claims about TLS to the registry: which certificate is missing or wrong is named, and rotated ones are taken."""

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from streamdedup.errors import ConfigError
from streamdedup.kafka.registry_options import SchemaRegistryOptions
from streamdedup.registry.client import Client, RegistryAwayError
from tests.broker.base import Unavailable
from tests.broker.certificates import Certificates, make_certificates
from tests.registry.stand_ins import answering

ANSWERS: dict[str, tuple[int, Any]] = {
    "/api/schemas/types": (200, ["AVRO"]),
    "/api/schemas/ids/7": (200, {"schema": "{}"}),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Give an authority, and certificates of a registry and a worker by it."""
    return of_authority(tmp_path_factory.mktemp("tls") / "made")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Give the same by another authority."""
    return of_authority(tmp_path_factory.mktemp("tls") / "foreign")


def of_authority(directory: Path) -> Certificates:
    """Make an authority with two certificates."""
    try:
        return make_certificates(directory, ["registry", "worker"])
    except Unavailable as why:
        pytest.skip(str(why))


def serving(by: Certificates, trusted: Certificates | None = None) -> ssl.SSLContext:
    """Return a registry's side of TLS; with `trusted`, it requires a certificate by that authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(by.certificate("registry"), by.key("registry"))
    if trusted is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(trusted.authority)
    return context


def client_of(url: str, trusted: Certificates, own: Certificates | None = None) -> Client:
    """Return a client that trusts one authority, and shows a certificate by another, or none."""
    files: dict[str, Any] = (
        {}
        if own is None
        else {"ssl_certfile": own.certificate("worker"), "ssl_keyfile": own.key("worker")}
    )
    return Client(SchemaRegistryOptions(url=url, ssl_cafile=trusted.authority, **files))


def test_a_registry_is_reached_by_tls(made: Certificates) -> None:
    """Its certificate is that of an authority of our own."""
    with answering(ANSWERS, serving(made)) as served:
        client = client_of(served.url, made)
        client.check()
        assert client.schema(7).text == "{}"


def test_a_certificate_of_ours_is_shown(made: Certificates) -> None:
    """If the registry requires one."""
    with answering(ANSWERS, serving(made, made)) as served:
        assert client_of(served.url, made, made).schema(7).text == "{}"


def test_each_refusal_names_the_option(made: Certificates, foreign: Certificates) -> None:
    """At a start it is the operator's error; later it is waited for, since a certificate may be renewed."""

    def refused(client: Client, why: str) -> None:
        with pytest.raises(ConfigError, match=why):
            client.check()
        with pytest.raises(RegistryAwayError, match=why):
            client.schema(7)

    with answering(ANSWERS, serving(made)) as served:
        refused(
            client_of(served.url, foreign), "ssl_cafile: the certificate of 127.0.0.1:.* is not"
        )
        name = served.url.replace("127.0.0.1", "localhost")
        refused(client_of(name, made), "url: the certificate of localhost:.* another host name")
    older = serving(made, made)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with answering(ANSWERS, older) as served:
        refused(client_of(served.url, made), "ssl_certfile: .* requires a client certificate")
        refused(client_of(served.url, made, foreign), "ssl_certfile: .* or refuses ours")
    with answering(ANSWERS) as served:
        refused(
            client_of(served.url.replace("http:", "https:"), made), "url: .* begin it with http:"
        )


def test_a_registry_that_closes_the_connection_may_not_trust_us(
    made: Certificates, foreign: Certificates
) -> None:
    """TLS 1.3 ends the handshake before our certificate is looked at: the refusal comes while we ask, or a closed end.

    Then the worker waits; the option is named in either case.
    """
    with answering(ANSWERS, serving(made, made)) as served:
        for own in (None, foreign):
            with pytest.raises((ConfigError, RegistryAwayError), match="ssl_certfile"):
                client_of(served.url, made, own).check()


def test_an_address_without_the_s_is_found(made: Certificates) -> None:
    """The server of a registry with TLS does not answer it."""
    with (
        answering(ANSWERS, serving(made)) as served,
        pytest.raises(RegistryAwayError, match="expect https:"),
    ):
        Client(SchemaRegistryOptions(url=served.url.replace("https:", "http:"))).check()


def test_rotated_certificates_are_taken(
    made: Certificates, foreign: Certificates, tmp_path: Path
) -> None:
    """By a client that began with others; meanwhile, files that do not fit together are waited for."""
    own = Certificates(tmp_path)
    names = ("worker.pem", "worker.key", "ca.pem")
    for name in names:
        shutil.copy(foreign.directory / name, tmp_path / name)
    with answering(ANSWERS, serving(made, made)) as served:
        client = client_of(served.url, own, own)
        shutil.copy(made.directory / names[0], tmp_path / names[0])
        with pytest.raises(RegistryAwayError, match=r"ssl_keyfile: the files cannot be loaded"):
            client.schema(7)
        for name in names[1:]:
            shutil.copy(made.directory / name, tmp_path / name)
        assert client.schema(7).text == "{}"


def test_files_are_read_at_once(made: Certificates, tmp_path: Path) -> None:
    """One that is no certificate, or a key that is encrypted, is an error before anything is asked."""
    wrong, key = Certificates(tmp_path), made.key("worker").read_text()
    wrong.authority.write_text("no certificate")
    with pytest.raises(ConfigError, match="ssl_cafile"):
        client_of("https://127.0.0.1:1", wrong)
    shutil.copy(made.certificate("worker"), tmp_path)
    encrypted = ["openssl", "pkey", "-aes128", "-passout", "pass:test", "-out"]
    subprocess.run([*encrypted, wrong.key("worker")], input=key, text=True, check=True)
    with pytest.raises(ConfigError, match=r"ssl_keyfile: .* a key that is not encrypted"):
        client_of("https://127.0.0.1:1", made, wrong)
