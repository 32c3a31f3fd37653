"""How the worker proves who it is, what it needs to be allowed, and what it keeps to itself, on a real broker.

The rights are read from docs/security.md, so that the page and the claim cannot drift apart.
"""

import asyncio
import gc
import re
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from proof.broker.oauth_provider import SUBJECT
from proof.broker.secure import (
    SCRAM,
    USER,
    Right,
    SecureBroker,
    secure_broker,
)
from proof.broker.test_deleted_topics import exists
from streamdedup.commands.doctor import doctor
from streamdedup.doctor.lines import Status
from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.events import Verdict
from streamdedup.repartition import purge, uncopied
from streamdedup.repartition.uncopied import Uncopied
from streamdedup.settings import load
from tests.broker.base import DEADLINE_S, wait_until
from tests.broker.certificates import HOST, make_certificates
from tests.broker.plugin import _found
from tests.broker.topics import Event, create_topic, produce, read_all, unique_name
from tests.broker.versions import wanted
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.lists.files import list_file
from tests.local import LocalWorker, Start, run_to_the_end, until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.private_broker,
    pytest.mark.needs_broker("PEM trust stores"),
    # asyncio ends a TLS connection that was given up by a farewell, for which a loop that ends does not wait.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
PASSWORD = "canary-of-the-password"  # noqa: S105 (of a broker that lives as long as the tests)
PASSWORD_VARIABLE = "STREAMDEDUP_KAFKA__SASL_PLAIN_PASSWORD"  # noqa: S105 (a name)
KEY = "canary-%d@example.com"
WORKERS = ("first", "second", "third")  # of one test, by their logs
needs_scram = pytest.mark.needs_broker("SCRAM users over the admin client")
MECHANISMS: list[Any] = [
    "PLAIN",
    pytest.param("SCRAM-SHA-256", marks=needs_scram),
    pytest.param("SCRAM-SHA-512", marks=needs_scram),
    "OAUTHBEARER",
]


@pytest.fixture(scope="module")
def secure() -> Iterator[SecureBroker]:
    """A broker with TLS, SASL and ACLs."""
    with closing(_found(lambda: secure_broker(PASSWORD))) as broker:
        yield broker


@pytest.fixture
def deployment(secure: SecureBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """Topics of every use, and a worker that comes by SCRAM, if there is that, and may do nothing yet."""
    made = Deployment(secure.bootstrap_servers, tmp_path, partitions=2).create()
    for leaf in ("dead_letter_topic", "duplicates_topic", "blocked_topic"):
        made.create_side_topic(leaf)
    made.config["blocklist"] = {"file": str(list_file(tmp_path / "block.list", [b"nobody"]))}
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    come_by(made, secure, "SCRAM-SHA-512" if SCRAM.is_in(secure.kafka) else "PLAIN")
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
        provider = "proof.broker.oauth_provider:unsecured_tokens"
        kafka |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": provider}
    else:
        kafka |= {"sasl_mechanism": mechanism, "sasl_plain_username": USER}
    return kafka


PLAIN, REPARTITION = 0, 1  # which of the lists of rights in docs/security.md


def lines_of(which: int) -> list[str]:
    """The lines of one list of rights."""
    section = PAGE.read_text("utf-8").split("### Rights for repartition\n")[which]
    return re.findall(r"^allow --.*$", section, re.MULTILINE)


def documented(deployment: Deployment, which: int = PLAIN) -> list[Right]:
    """The rights that docs/security.md lists, for the names of this deployment."""
    sink = deployment.config["sink"]
    middle = deployment.config["source"].get("repartition", {}).get("topic")
    has_controllers = wanted().has_controllers
    names = {
        "events": deployment.source,
        "events-unique": deployment.sink,
        "events-dead-letter": sink.get("dead_letter_topic"),
        "events-duplicates": sink.get("duplicates_topic"),
        "events-blocked": sink.get("blocked_topic"),
        "dedup": deployment.group,
        # With ZooKeeper, the name of a resource is a path, so it has no slash.
        "events-unique/": f"{deployment.sink}/" if has_controllers else deployment.sink,
        "events-by-key": middle,
        "dedup-repartition": f"{deployment.group}-repartition",
        "events-by-key/": f"{middle}/" if has_controllers else middle,
    }
    rights: list[Right] = []
    for line in lines_of(which):
        _, resource, name, *rest = line.split()
        if used := names[name]:
            operations = re.findall(r"--operation (\w+)", line)
            rights += [Right(resource[2:], used, op, "prefixed" in rest) for op in operations]
    return rights


def needed_by(which: int) -> list[str]:
    """One name for each right of a list, in its order."""
    cut = [re.findall(r"^allow --(.*?) --(.*)$", line)[0] for line in lines_of(which)]
    return [
        f"{use} on {what}" for what, uses in cut for use in re.findall(r"operation (\w+)", uses)
    ]


NEEDED, NEEDED_MORE = needed_by(PLAIN), needed_by(REPARTITION)


async def refused(deployment: Deployment, start: Start) -> str:
    """Return the error of a worker that ended by itself."""
    with pytest.raises(ConfigError) as refusal:
        await start(deployment).task
    gc.collect()  # a resource that it left open is reported here
    return str(refusal.value)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "streamdedup", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
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
    worker = run_to_the_end(deployment)
    assert lost_and_doubled(deployment) == (0, 0, 0)
    assert worker.lines("doubt") == []


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
    done = run("run", "-c", str(deployment.write_config()))
    assert done.returncode == 2, done.stderr
    text = done.stderr
    assert "kafka.sasl_plain_username, sasl_plain_password" in text
    assert f"refuses the user '{USER}'" in text
    assert "canary" not in text


async def test_a_refused_token_ends_the_worker(
    secure: SecureBroker, deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that the broker does not trust is named, though aiokafka takes its refusal for success."""
    monkeypatch.delenv(PASSWORD_VARIABLE)
    monkeypatch.setenv(SUBJECT, "")
    come_by(deployment, secure, "OAUTHBEARER")
    assert "kafka.sasl_oauth_token_provider" in await refused(deployment, start)


async def test_a_foreign_authority_ends_the_worker(
    deployment: Deployment, start: Start, tmp_path: Path
) -> None:
    """A broker whose certificate another authority signed is not spoken to, and `ssl_cafile` is named."""
    foreign = make_certificates(tmp_path / "foreign", [])
    deployment.config["kafka"]["ssl_cafile"] = str(foreign.authority)
    assert "kafka.ssl_cafile" in await refused(deployment, start)


async def test_another_host_name_ends_the_worker(
    secure: SecureBroker, deployment: Deployment, start: Start
) -> None:
    """A certificate that does not bear the broker's name is named as the reason."""
    deployment.config["kafka"]["bootstrap_servers"] = secure.sasl_ssl.replace(HOST, "localhost")
    assert "kafka.ssl_check_hostname" in await refused(deployment, start)


@pytest.mark.needs_broker("TLS alerts about a certificate that is missing")
async def test_no_certificate_or_a_foreign_one_ends_the_worker(
    secure: SecureBroker,
    deployment: Deployment,
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the broker wants a certificate of ours, the error names `ssl_certfile`."""
    monkeypatch.delenv(PASSWORD_VARIABLE)
    kafka = come_by(deployment, secure, "mutual TLS")
    foreign = make_certificates(tmp_path / "foreign", [USER])
    kafka |= {
        "ssl_certfile": str(foreign.certificate(USER)),
        "ssl_keyfile": str(foreign.key(USER)),
    }
    assert "kafka.ssl_certfile" in await refused(deployment, start)
    del kafka["ssl_certfile"], kafka["ssl_keyfile"]
    assert "kafka.ssl_certfile" in await refused(deployment, start)


async def test_a_listener_without_sasl_ends_the_worker(
    secure: SecureBroker, deployment: Deployment, start: Start
) -> None:
    """The error names `security_protocol` if the listener speaks another one."""
    kafka = deployment.config["kafka"]
    kafka["bootstrap_servers"] = secure.bootstrap_servers
    kafka["security_protocol"] = "SASL_PLAINTEXT"
    del kafka["ssl_cafile"]
    assert "kafka.security_protocol" in await refused(deployment, start)


async def test_an_encrypted_key_without_its_passphrase_is_refused(
    secure: SecureBroker, deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked for it at the terminal; with it, the worker runs."""
    monkeypatch.delenv(PASSWORD_VARIABLE)
    kafka = come_by(deployment, secure, "mutual TLS")
    encrypted = deployment.directory / "encrypted.key"
    command = f"openssl pkcs8 -topk8 -passout pass:{PASSWORD} -in {kafka['ssl_keyfile']}"
    command += f" -out {encrypted}"
    await asyncio.to_thread(subprocess.run, command.split(), check=True)
    kafka["ssl_keyfile"] = str(encrypted)
    text = await refused(deployment, start)
    assert "kafka.ssl_password_file" in text
    monkeypatch.setenv("STREAMDEDUP_KAFKA__SSL_PASSWORD", PASSWORD)
    secure.allow(documented(deployment))
    deployment.feed(keyed(range(100), 2))
    await start(deployment).to_the_end()


def test_at_least_once_needs_no_more_rights(secure: SecureBroker, deployment: Deployment) -> None:
    """The documented rights are enough without transactions, too."""
    deployment.config["delivery"]["guarantee"] = "at_least_once"
    secure.allow(documented(deployment))
    deployment.feed(keyed([*range(200), *range(100)], 2))
    worker = run_to_the_end(deployment)
    assert lost_and_doubled(deployment) == (0, 0, 0)
    assert worker.lines("doubt") == []


async def test_create_topics_needs_create(
    secure: SecureBroker, deployment: Deployment, start: Start
) -> None:
    """Missing topics are made with Create on each of them and DescribeConfigs on the source."""
    deployment.sink = unique_name("made")
    deployment.config["sink"] = {"topic": deployment.sink, "create_topics": True}
    rights = documented(deployment)
    secure.allow(rights)
    text = await refused(deployment, start)
    assert f"the topic {deployment.sink} could not be created" in text
    secure.allow([Right("topic", deployment.sink, "Create")])
    secure.allow([Right("topic", deployment.source, "DescribeConfigs")])
    deployment.feed(keyed(range(100), 2))
    worker = await start(deployment).to_the_end()
    assert [line["topic"] for line in worker.lines("topic_created")] == [deployment.sink]
    assert lost_and_doubled(deployment) == (0, 0, 0)


@pytest.mark.parametrize("needed", [use for use in NEEDED if "DescribeConfigs" not in use])
@pytest.mark.rule(13)
async def test_a_missing_right_is_named(
    secure: SecureBroker, deployment: Deployment, start: Start, needed: str
) -> None:
    """With one documented right less, the worker ends or its shards stop, by name, and nothing is tried for ever."""
    rights = documented(deployment)
    missing = rights.pop(NEEDED.index(needed))
    secure.allow(rights)
    deployment.feed(keyed(range(10), 2))
    worker = start(deployment)
    await until(
        lambda: worker.task.done() or worker.lines("shard_stopped"),
        lambda: f"{needed} is not missed: {worker.lines()[-3:]}",
    )
    check_named(worker, missing)


def check_named(worker: LocalWorker, missing: Right) -> None:
    """The `missing` right is named by what ended or stopped `worker`, and nothing was in doubt."""
    ended = worker.task.exception() if worker.task.done() else None
    assert isinstance(ended, ConfigError | DeliveryError | None)
    text = f"{ended} {worker.lines()}"
    assert ("kafka.group_id" if missing.resource == "group" else missing.name) in text
    named = (missing.operation, "may not be seen", "could not be created")
    assert any(text_of in text for text_of in named)
    for event in ("doubt", "repartition_doubt", "broker_away"):
        assert worker.lines(event) == []


@pytest.fixture
def staged(deployment: Deployment) -> Deployment:
    """A deployment with `source.repartition`, whose middle topic is not there yet."""
    middle = {"topic": unique_name("middle"), "partitions": 2}
    deployment.config["source"]["repartition"] = middle
    return deployment


def is_purged(bootstrap: str, topic: str) -> bool:
    """Return whether no record is left in the topic; False, too, if some are deleted while they are read."""
    try:
        return not read_all(bootstrap, topic)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._AUTO_OFFSET_RESET:
            raise
        return False


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
async def test_repartition_needs_the_documented_rights_alone(
    secure: SecureBroker,
    staged: Deployment,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    guarantee: str,
) -> None:
    """Both stages run by them, and purge; that groups are not listed is said, and changes nothing."""
    monkeypatch.setattr(purge, "EVERY_S", 0.5)
    middle = staged.config["source"]["repartition"]["topic"]
    staged.config["delivery"]["guarantee"] = guarantee
    secure.allow([*documented(staged), *documented(staged, REPARTITION)])
    events = list(keyed([*range(200), *range(100)], 2))
    await asyncio.to_thread(staged.feed, events)
    async with start(staged) as worker:
        await worker.consumed(len(events))
        await asyncio.to_thread(
            wait_until,
            lambda: is_purged(staged.bootstrap, middle),
            DEADLINE_S,
            lambda: f"not purged: {worker.lines()[-3:]}",
        )
    assert len(worker.lines("groups_not_listed")) == 1
    for event in ("doubt", "repartition_doubt", "middle_not_purged"):
        assert worker.lines(event) == []
    passed = [
        event.key for event in await asyncio.to_thread(read_all, staged.bootstrap, staged.sink)
    ]
    assert Counter(passed) == Counter({key for _, key, *_ in events})


async def test_the_second_stage_alone_sees_what_is_not_copied_by_fewer_rights(
    secure: SecureBroker, staged: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Describe on the input and on the group of the first stage are enough to notice that nobody copies."""
    monkeypatch.setattr(Uncopied, "TURN_S", 0.5)
    monkeypatch.setattr(uncopied, "MISSING_S", 1.0)
    every = [*documented(staged), *documented(staged, REPARTITION)]
    secure.allow(every)
    async with start(staged) as worker:
        await worker.logged("repartition_live")
    only = {staged.source: "topic", f"{staged.group}-repartition": "group"}
    secure.allow(Right(resource, name, "Describe") for name, resource in only.items())
    for right in every:
        if right.name in only:
            secure.deny(right)
    await asyncio.to_thread(staged.feed, list(keyed(range(100), 2)))
    async with start(staged, copies=False) as worker:
        (line,) = await worker.logged("repartition_missing")
        assert line["input_lag"] == 100
        assert not worker.lines("task_failed")


@pytest.mark.parametrize("needed", [use for use in NEEDED_MORE if "DescribeConfigs" not in use])
@pytest.mark.rule(26)
async def test_a_right_that_repartition_lacks_is_named(
    secure: SecureBroker, staged: Deployment, start: Start, needed: str
) -> None:
    """With one right less, the worker ends or its first stage stops, by name; without Delete, before it begins."""
    rights = documented(staged, REPARTITION)
    missing = rights.pop(NEEDED_MORE.index(needed))
    secure.allow([*documented(staged), *rights])
    await asyncio.to_thread(staged.feed, keyed(range(10), 2))
    worker = start(staged)
    await until(
        lambda: worker.task.done() or worker.lines("repartition_stopped"),
        lambda: f"{needed} is not missed: {worker.lines()[-3:]}",
    )
    check_named(worker, missing)
    if missing.resource != "transactional-id":  # which is known once the topic is written to
        assert not exists(staged, staged.config["source"]["repartition"]["topic"])


@pytest.mark.parametrize(
    ("resource", "operation"),
    [("group", "Read"), ("topic", "Read"), ("topic", "Write"), ("letters", "Write")],
)
async def test_a_start_without_a_right_makes_no_topic(
    secure: SecureBroker, staged: Deployment, start: Start, resource: str, operation: str
) -> None:
    """Rights on the second stage's group, and on topics that are not there yet, are looked at first."""
    made = {name: unique_name(name) for name in ("output", "letters")}
    staged.sink = made["output"]
    sink = {"topic": staged.sink, "dead_letter_topic": made["letters"], "create_topics": True}
    staged.config["sink"] = sink
    name = {"group": staged.group, "topic": staged.sink}.get(resource, made["letters"])
    missing = Right("group" if resource == "group" else "topic", name, operation)
    rights = [*documented(staged), *documented(staged, REPARTITION)]
    rights += [Right("topic", topic, "Create") for topic in made.values()]
    secure.allow(right for right in rights if right != missing)
    assert missing in rights
    worker = start(staged)
    await asyncio.wait({worker.task}, timeout=DEADLINE_S)
    check_named(worker, missing)
    middle = staged.config["source"]["repartition"]["topic"]
    assert not any(exists(staged, topic) for topic in (middle, *made.values()))


def test_settings_that_may_not_be_seen_are_told_of(
    secure: SecureBroker, deployment: Deployment
) -> None:
    """Without DescribeConfigs on the output the worker runs, and says what it cannot check."""
    rights = documented(deployment)
    rights.remove(Right("topic", deployment.sink, "DescribeConfigs"))
    secure.allow(rights)
    deployment.feed(keyed(range(10), 2))
    (line,) = run_to_the_end(deployment).lines("worker_starts")
    assert "grant DescribeConfigs" in line["topic_settings"]


async def test_a_right_that_is_taken_away_stops_the_shards(
    secure: SecureBroker, deployment: Deployment, start: Start
) -> None:
    """Without Write on the output no event is lost, dead-lettered or tried for ever; once it is back, all go on."""
    secure.allow(documented(deployment))
    deployment.feed(keyed(range(100), 2))
    async with start(deployment) as worker:
        await worker.caught_up()
        secure.deny(Right("topic", deployment.sink, "Write"))
        deployment.feed(keyed(range(50, 200), 2))
        stopped = await worker.logged("shard_stopped", deployment.partitions)
        assert all(deployment.sink in line["error"] for line in stopped)
    secure.allow([Right("topic", deployment.sink, "Write")])
    await start(deployment).to_the_end()
    assert lost_and_doubled(deployment) == (0, 0, 0)
    assert read_all(deployment.bootstrap, deployment.config["sink"]["dead_letter_topic"]) == []


async def test_a_right_on_the_control_topic_that_is_taken_away_delays_changes_alone(
    secure: SecureBroker, deployment: Deployment, start: Start
) -> None:
    """The log says so, events flow by the changes that were read, and the others follow once the right is back."""
    control = unique_name("control")
    create_topic(secure.bootstrap_servers, control, 1, cleanup_policy="compact")
    deployment.config["blocklist"]["control_topic"] = control
    rights = [Right("topic", control, operation) for operation in ("Read", "Describe")]
    secure.allow([*documented(deployment), *rights])

    def add(number: int) -> None:
        entry = b"user%d@example.com" % number
        message: Event = (0, entry, b'{"op": "add"}', [], None)
        produce(secure.bootstrap_servers, control, [message])

    def changed() -> int:
        block: Any = worker.worker.status.lists.now.block
        return len(block.overlay)

    add(1)
    async with start(deployment) as worker:
        await worker.live()
        for right in rights:
            secure.deny(right)
        await asyncio.to_thread(add, 2)
        await worker.logged("changes_behind")
        await asyncio.to_thread(deployment.feed, keyed(range(10), 2))
        await worker.caught_up()
        assert (worker.tally[Verdict.BLOCKED], changed()) == (1, 1)
        secure.allow(rights)
        await worker.until(lambda: changed() == 2, "the other change")


@pytest.mark.needs_broker("topics that are known at the start")
async def test_a_broker_that_is_away_is_waited_for(
    secure: SecureBroker, deployment: Deployment, start: Start
) -> None:
    """What is refused ends the worker; what does not answer yet does not."""
    secure.allow(documented(deployment))
    deployment.feed(keyed(range(100), 2))
    secure.stop()
    async with start(deployment) as worker:
        await worker.logged("broker_away")
        await asyncio.to_thread(secure.start)
        await worker.caught_up()
    assert lost_and_doubled(deployment) == (0, 0, 0)


def test_no_key_and_no_secret_leaves_by_the_side_door(
    secure: SecureBroker, deployment: Deployment
) -> None:
    """Through bad events, a fenced worker, a killed broker and a restart: not one in logs, snapshots, `config show`."""
    sink = deployment.config["sink"]
    sink["topic"] = deployment.sink = unique_name("small")
    create_topic(deployment.bootstrap, deployment.sink, 2, max_message_bytes=2000)
    deployment.config["key"] = {"from": "json", "field": "email"}
    del sink["duplicates_topic"]
    sink["compression"] = "none"  # or none would be too large
    secure.allow(documented(deployment))
    deployment.feed(canaries(range(50)))
    with deployment.running("first.log") as first:
        deployment.catch_up(first)
        deployment.config["kafka"]["group_id"] = other = unique_name("other")
        secure.allow([Right("group", other, "Read")])
        with deployment.running("second.log") as second:
            second.wait_for("shard_live", deployment.partitions)
            deployment.feed(canaries(range(25, 75)))
            first.wait_for("doubt")
        deployment.config["kafka"]["group_id"] = deployment.group
        secure.kill()
        secure.start()
        deployment.feed(canaries(range(50, 100)))
        deployment.catch_up(first)
        assert first.interrupt() == 0
    del sink["dead_letter_topic"]
    deployment.feed(canaries([100, 101]))
    with deployment.running("third.log") as third:
        third.wait_for("shard_stopped", deployment.partitions)  # too large, and no dead letters
        assert third.interrupt() == 0
    shown = run("config", "show", str(deployment.write_config()))
    assert shown.returncode == 0, shown.stderr
    assert_no_canary(deployment.directory / f"{name}.log" for name in WORKERS)
    snapshots = [path for path in deployment.snapshots.rglob("*") if path.is_file()]
    assert_no_canary(snapshots)
    drawn = re.findall(r'"secret":"([0-9a-f]{32})"', "".join(map(_text, snapshots)))
    logs = "".join((deployment.directory / f"{name}.log").read_text() for name in WORKERS)
    assert drawn
    assert not [secret for secret in drawn if secret in logs + shown.stdout]
    assert {stat.S_IMODE(path.stat().st_mode) for path in snapshots} == {0o600}
    assert "canary" not in shown.stdout


def _text(path: Path) -> str:
    return path.read_bytes().decode("latin-1")


def canaries(numbers: Iterable[int]) -> Iterator[Event]:
    """For each number an event that is well formed, one for each way to be malformed, and one that is too large."""
    for number in numbers:
        key = KEY % number
        for value in (
            f'{{"email": "{key}"}}',
            f'{{"email": "{key}"',
            f'{{"email": ["{key}"]}}',
            f'{{"{key}": 1}}',
            f'{{"email": "{key}", "more": "{key * 200}"}}',
        ):
            yield number % 2, key.encode(), value.encode(), [(key, key.encode())], None


def assert_no_canary(files: Iterable[Path]) -> None:
    """None of the files, of which there is one at least, holds a part of a key or of the password."""
    contents = {path.name: path.read_bytes() for path in files}
    assert contents
    assert [name for name, content in contents.items() if b"canary" in content] == []


@pytest.mark.parametrize("needed", [None, *NEEDED])
async def test_doctor_names_a_missing_right(
    secure: SecureBroker, deployment: Deployment, needed: str | None
) -> None:
    """With the command that grants it; with all rights, only what the broker does not report is unknown."""
    rights = documented(deployment)
    missing = rights.pop(NEEDED.index(needed)) if needed else None
    secure.allow(rights)
    deployment.feed(keyed(range(10), 2))
    report = await doctor(load(deployment.write_config()), 10)
    lines = [line for line in report.lines if line.check.startswith("rights-")]
    wrong = [line for line in lines if line.status in (Status.FAILURE, Status.WARNING)]
    if missing is None:
        assert not wrong
        unknown = {line.check for line in lines if line.status is Status.UNKNOWN}
        assert unknown == {"rights-transactions"}
        assert report.exit_status != 2, [line.text for line in report.lines]
        return
    named = [line for line in wrong if missing.name.rstrip("/") in line.text]
    option = f"--{missing.resource} "
    assert any(option in line.text and missing.operation in line.text for line in named), lines
    status = Status.WARNING if missing.operation == "DescribeConfigs" else Status.FAILURE
    assert status in {line.status for line in named}
