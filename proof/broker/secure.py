"""A broker as a process that lets in whom it knows: TLS, SASL, client certificates, and ACLs.

`bootstrap_servers` is the tests' own entrance, in the clear and a super user; workers take
`sasl_ssl` or `ssl`. Nobody else may do anything before `allow`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined] # it marks none as exported
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.broker.base import DEADLINE_S, admin_client, free_ports, wait_until
from tests.broker.certificates import HOST, make_certificates, openssl
from tests.broker.needs import FEATURES
from tests.broker.process import ProcessBroker
from tests.broker.versions import Kafka, wanted

SCRAM = FEATURES["SCRAM users over the admin client"]
USER = "dedup"

_JAAS = "org.apache.kafka.common.security"
SETTINGS = {
    "listener.security.protocol.map": ",".join(
        (
            "PLAINTEXT:PLAINTEXT",
            "CONTROLLER:PLAINTEXT",
            "SASLSSL:SASL_SSL",
            "MUTUAL:SSL",
        )
    ),
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "ssl.keystore.type": "PKCS12",  # of PEM files brokers before 3.0 want the key encrypted
    "ssl.keystore.password": "of-the-tests",
    "ssl.key.password": "of-the-tests",
    "ssl.truststore.type": "PEM",
    "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/",
    "listener.name.mutual.ssl.client.auth": "required",
    "listener.name.saslssl.scram-sha-256.sasl.jaas.config": f"{_JAAS}.scram.ScramLoginModule required;",
    "listener.name.saslssl.scram-sha-512.sasl.jaas.config": f"{_JAAS}.scram.ScramLoginModule required;",
    "listener.name.saslssl.oauthbearer.sasl.jaas.config": (
        f"{_JAAS}.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="broker";'
    ),
}


STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ZOOKEEPER_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


class SecureBroker(ProcessBroker):
    """A `ProcessBroker` with two more listeners, at `sasl_ssl` and `ssl`, and one user."""

    def __init__(self, kafka: Kafka, password: str) -> None:
        super().__init__(kafka)
        self._password = password
        sasl_ssl, mutual = free_ports(2)
        self.sasl_ssl, self.ssl = f"{HOST}:{sasl_ssl}", f"{HOST}:{mutual}"
        self.certificates = make_certificates(self._directory / "tls", ["broker", USER])
        self._add_settings()

    def add_scram_user(self) -> None:
        """Give `USER` its password for both SCRAM mechanisms; PLAIN has it in the settings."""
        password = self._password.encode()
        credentials = [
            UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), password)
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for credential in credentials:
            admin = admin_client(self.bootstrap_servers)
            admin.alter_user_scram_credentials([credential])[USER].result(DEADLINE_S)

    def allow(self, rights: Iterable["Right"]) -> None:
        """Grant rights to `USER`; returns when the broker goes by them."""
        admin, wanted = admin_client(self.bootstrap_servers), list(rights)
        for done in admin.create_acls([right.grant() for right in wanted]).values():
            done.result(DEADLINE_S)
        wait_until(
            lambda: all(_is_granted(admin, right) for right in wanted),
            DEADLINE_S,
            lambda: f"not granted: {[str(r) for r in wanted if not _is_granted(admin, r)]}",
        )

    def deny(self, right: "Right") -> None:
        """Take back a right that was granted; returns when the broker goes by that."""
        admin = admin_client(self.bootstrap_servers)
        for done in admin.delete_acls([right.grants()]).values():
            assert done.result(DEADLINE_S), f"{right} was not granted"
        wait_until(
            lambda: not _is_granted(admin, right), DEADLINE_S, lambda: f"{right} is still granted"
        )

    def _add_settings(self) -> None:
        own = self.settings
        more = f",SASLSSL://{self.sasl_ssl},MUTUAL://{self.ssl}"
        keystore = self.certificates.directory / "broker.p12"
        settings = {
            **own,
            **SETTINGS,
            "authorizer.class.name": (
                STANDARD_AUTHORIZER if self.kafka.has_controllers else ZOOKEEPER_AUTHORIZER
            ),
            "listeners": own["listeners"] + more,
            "advertised.listeners": own["advertised.listeners"] + more,
            "ssl.keystore.location": keystore,
            "ssl.truststore.location": self.certificates.authority,
            "listener.name.saslssl.plain.sasl.jaas.config": (
                f'{_JAAS}.plain.PlainLoginModule required user_{USER}="{self._password}";'
            ),
        }
        made = ["pkcs12", "-export", "-passout", f"pass:{SETTINGS['ssl.keystore.password']}"]
        key, certificate = self.certificates.key("broker"), self.certificates.certificate("broker")
        openssl(*made, "-inkey", key, "-in", certificate, "-out", keystore)
        self.configure(settings)


@dataclass(frozen=True)
class Right:
    """One operation on one resource; `prefixed`: on all whose names begin so."""

    resource: str
    name: str
    operation: str
    prefixed: bool = False

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name}"

    def grant(self) -> AclBinding:
        """What gives `USER` this right."""
        return AclBinding(*self._rule())

    def grants(self) -> AclBindingFilter:
        """What finds the grant again."""
        return AclBindingFilter(*self._rule())

    def _rule(self) -> tuple[Any, ...]:
        pattern = ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL
        return (
            _RESOURCES[self.resource],
            self.name,
            pattern,
            f"User:{USER}",
            "*",
            _OPERATIONS[self.operation],
            AclPermissionType.ALLOW,
        )


def _is_granted(admin: AdminClient, right: Right) -> bool:
    return bool(admin.describe_acls(right.grants()).result(DEADLINE_S))


_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}


def secure_broker(password: str) -> SecureBroker:
    """Start a new one whose user has `password`; raises `Unavailable`."""
    broker = SecureBroker(wanted(), password)
    try:
        broker.format()
        broker.start()
        if SCRAM.is_in(broker.kafka):
            broker.add_scram_user()
    except BaseException:
        broker.close()
        raise
    return broker
