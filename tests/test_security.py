"""How the worker proves who it is, what it needs to be allowed, and what it keeps to itself, on a real broker.

The rights are read from docs/security.md, so that the page and the claim cannot drift apart.
"""

import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.broker.plugin import _found
from tests.broker.secure import HOST, USER, Right, SecureBroker, make_certificates, secure_broker
from tests.broker.topics import Event, create_topic, read_all, unique_name
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.oauth_provider import SUBJECT

pytestmark = [pytest.mark.broker, pytest.mark.private_broker]

PAGE = Path(__file__).parent.parent / "docs" / "security.md"
PASSWORD = "canary-of-the-password"  # noqa: S105 (of a broker that lives as long as the tests)
PASSWORD_VARIABLE = "STREAMDEDUP_KAFKA__SASL_PLAIN_PASSWORD"  # noqa: S105 (a name)
KEY = "canary-%d@example.com"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
REFUSED_S = 40


@pytest.fixture(scope="module")
def secure() -> Iterator[SecureBroker]:
    """A broker with TLS, SASL and ACLs."""
    with closing(_found(lambda: secure_broker(PASSWORD))) as broker:
        yield broker


@pytest.fixture
def deployment(secure: SecureBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """Topics of every use, and a worker that comes by SCRAM and may do nothing yet."""
    made = Deployment(secure.bootstrap_servers, tmp_path, partitions=2).create()
    for leaf in ("dead_letter_topic", "duplicates_topic"):
        made.create_side_topic(leaf)
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    come_by(made, secure, "SCRAM-SHA-512")
    return made


def come_by(deployment: Deployment, secure: SecureBroker, mechanism: str) -> dict[str, Any]:
    """Configure how the worker connects; what `kafka` now holds."""
    kafka = deployment.config["kafka"]
    for leaf in [leaf for leaf in kafka if leaf.startswith(("s", "bootstrap"))]:
        del kafka[leaf]
    kafka |= {
        "bootstrap_servers": secure.sasl_ssl,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(secure.certificates.authority),
    }
    if mechanism == "mutual TLS":
        kafka |= {
            "bootstrap_servers": secure.ssl,
            "security_protocol": "SSL",
            "ssl_certfile": str(secure.certificates.certificate(USER)),
            "ssl_keyfile": str(secure.certificates.key(USER)),
        }
    elif mechanism == "OAUTHBEARER":
        provider = "tests.oauth_provider:unsecured_tokens"
        kafka |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": provider}
    else:
        kafka |= {"sasl_mechanism": mechanism, "sasl_plain_username": USER}
    return kafka


def documented(deployment: Deployment) -> list[Right]:
    """The rights that docs/security.md lists, for the names of this deployment."""
    sink = deployment.config["sink"]
    names = {
        "events": deployment.source,
        "events-unique": deployment.sink,
        "events-dead-letter": sink.get("dead_letter_topic"),
        "events-duplicates": sink.get("duplicates_topic"),
        "dedup": deployment.group,
        "events-unique/": f"{deployment.sink}/",
    }
    rights = []
    for line in re.findall(r"^allow --.*$", PAGE.read_text("utf-8"), re.MULTILINE):
        _, resource, name, *rest = line.split()
        for operation in re.findall(r"--operation (\w+)", line):
            right = Right(resource[2:], names[name], operation, prefixed="prefixed" in rest)
            rights.append(right)
    return rights


def documented_uses() -> list[tuple[str, str]]:
    """The same as resource and operation, for the names of tests."""
    found = re.findall(r"^allow --(.*?) --(.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    return [(what, use) for what, rest in found for use in re.findall(r"operation (\w+)", rest)]


def refused_text(deployment: Deployment) -> str:
    """What the worker wrote, which ended with status 2 without being asked to."""
    done = run("run", "-c", str(deployment.write_config()))
    assert done.returncode == 2, done.stderr
    return done.stderr


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "streamdedup", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=REFUSED_S,
    )


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "mutual TLS"])
def test_every_mechanism_leads_to_an_exact_output(
    secure: SecureBroker,
    deployment: Deployment,
    monkeypatch: pytest.MonkeyPatch,
    mechanism: str,
) -> None:
    """By each mechanism, and with the documented rights alone, a topic is de-duplicated exactly once."""
    monkeypatch.setenv(SUBJECT, USER)
    if mechanism in ("OAUTHBEARER", "mutual TLS"):
        monkeypatch.delenv(PASSWORD_VARIABLE)
    come_by(deployment, secure, mechanism)
    secure.allow(documented(deployment))
    deployment.feed(keyed([*range(400), *range(200)], 2))
    worker = deployment.run_to_the_end()
    assert lost_and_doubled(deployment) == (0, 0, 0)
    assert worker.events("doubt") == []


def test_a_password_may_come_from_a_file(
    secure: SecureBroker, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sasl_plain_password_file` does what the environment does."""
    monkeypatch.delenv(PASSWORD_VARIABLE)
    secret = deployment.directory / "password"
    secret.write_text(f"{PASSWORD}\n")
    deployment.config["kafka"]["sasl_plain_password_file"] = str(secret)
    secure.allow(documented(deployment))
    deployment.feed(keyed(range(100), 2))
    deployment.run_to_the_end()
    assert lost_and_doubled(deployment) == (0, 0, 0)


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_a_wrong_password_ends_the_worker(
    secure: SecureBroker,
    deployment: Deployment,
    monkeypatch: pytest.MonkeyPatch,
    mechanism: str,
) -> None:
    """The message names the leaves and the user, never the password."""
    monkeypatch.setenv(PASSWORD_VARIABLE, "canary-wrong")
    come_by(deployment, secure, mechanism)
    text = refused_text(deployment)
    assert "kafka.sasl_plain_username, sasl_plain_password" in text
    assert f"refuses the user '{USER}'" in text
    assert "canary" not in text


def test_a_refused_token_ends_the_worker(
    secure: SecureBroker, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that the broker does not trust is named, though aiokafka takes its refusal for success."""
    monkeypatch.delenv(PASSWORD_VARIABLE)
    monkeypatch.setenv(SUBJECT, "")
    come_by(deployment, secure, "OAUTHBEARER")
    assert "kafka.sasl_oauth_token_provider" in refused_text(deployment)


def test_a_foreign_authority_ends_the_worker(
    secure: SecureBroker, deployment: Deployment, tmp_path: Path
) -> None:
    """A broker whose certificate another authority signed is not spoken to, and `ssl_cafile` is named."""
    foreign = make_certificates(tmp_path / "foreign", [])
    deployment.config["kafka"]["ssl_cafile"] = str(foreign.authority)
    assert "kafka.ssl_cafile" in refused_text(deployment)


def test_another_host_name_ends_the_worker(secure: SecureBroker, deployment: Deployment) -> None:
    """A certificate that does not bear the broker's name is named as the reason."""
    deployment.config["kafka"]["bootstrap_servers"] = secure.sasl_ssl.replace(HOST, "localhost")
    assert "kafka.ssl_check_hostname" in refused_text(deployment)


def test_no_certificate_or_a_foreign_one_ends_the_worker(
    secure: SecureBroker,
    deployment: Deployment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the broker wants a certificate of ours, `ssl_certfile` is named."""
    monkeypatch.delenv(PASSWORD_VARIABLE)
    kafka = come_by(deployment, secure, "mutual TLS")
    foreign = make_certificates(tmp_path / "foreign", [USER])
    kafka |= {
        "ssl_certfile": str(foreign.certificate(USER)),
        "ssl_keyfile": str(foreign.key(USER)),
    }
    assert "kafka.ssl_certfile" in refused_text(deployment)
    del kafka["ssl_certfile"], kafka["ssl_keyfile"]
    assert "kafka.ssl_certfile" in refused_text(deployment)


def test_a_listener_without_sasl_ends_the_worker(
    secure: SecureBroker, deployment: Deployment
) -> None:
    """`security_protocol` is named where the listener speaks another one."""
    kafka = deployment.config["kafka"]
    kafka["bootstrap_servers"] = secure.bootstrap_servers
    kafka["security_protocol"] = "SASL_PLAINTEXT"
    del kafka["ssl_cafile"]
    assert "kafka.security_protocol" in refused_text(deployment)


def test_an_encrypted_key_without_its_passphrase_is_refused(
    secure: SecureBroker, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked for it at the terminal; with it, the worker runs."""
    monkeypatch.delenv(PASSWORD_VARIABLE)
    kafka = come_by(deployment, secure, "mutual TLS")
    encrypted = deployment.directory / "encrypted.key"
    subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-in", kafka["ssl_keyfile"], "-out", str(encrypted)]
        + ["-passout", f"pass:{PASSWORD}"],
        check=True,
    )
    kafka["ssl_keyfile"] = str(encrypted)
    text = refused_text(deployment)
    assert "kafka.ssl_password_file" in text
    monkeypatch.setenv("STREAMDEDUP_KAFKA__SSL_PASSWORD", PASSWORD)
    secure.allow(documented(deployment))
    deployment.feed(keyed(range(100), 2))
    deployment.run_to_the_end()


def test_at_least_once_needs_no_more_rights(secure: SecureBroker, deployment: Deployment) -> None:
    """The documented rights are enough without transactions, too."""
    deployment.config["delivery"]["guarantee"] = "at_least_once"
    secure.allow(documented(deployment))
    deployment.feed(keyed([*range(200), *range(100)], 2))
    worker = deployment.run_to_the_end()
    assert lost_and_doubled(deployment) == (0, 0, 0)
    assert worker.events("doubt") == []


def test_create_topics_needs_create(secure: SecureBroker, deployment: Deployment) -> None:
    """Missing topics are made with Create on each of them and DescribeConfigs on the source."""
    sink = deployment.config["sink"] = {"topic": unique_name("made"), "create_topics": True}
    deployment.sink = sink["topic"]
    deployment.config["sink"]["dead_letter_topic"] = unique_name("made-letters")
    del deployment.config["sink"]["dead_letter_topic"]
    rights = [right for right in documented(deployment) if right.name]
    assert f"the topic {deployment.sink}" in refused_text(deployment)
    more = [
        Right("topic", deployment.sink, "Create"),
        Right("topic", deployment.source, "DescribeConfigs"),
    ]
    secure.allow([*rights, *more])
    deployment.feed(keyed(range(100), 2))
    worker = deployment.run_to_the_end()
    assert [line["topic"] for line in worker.events("topic_created")] == [deployment.sink]
    assert lost_and_doubled(deployment) == (0, 0, 0)
