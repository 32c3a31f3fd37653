"""What becomes of configurations: the tree that is in force, each leaf with its origin, or what is refused and where.

A case is what an operator writes; its outcome is what `config show` prints for it. Of a refusal the places, the names
and the shown values are kept, and not the words.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from proof.golden.command import Ended, call
from tests.settings.minimal import MINIMAL

PLAIN = MINIMAL

FILES: Mapping[str, str | bytes] = {
    "some.pem": "pem",
    "one.list": "it only has to be there",
    "other.list": "it only has to be there",
    "secret": "hunter2\n",
    "crlf": " hunter2 \r\n",
    "hash-key": "00112233445566778899AAbbccddeeff\n",
    "empty": "",
    "line-end": "\n",
    "latin": b"\xff\n",
}


@dataclass(frozen=True)
class Case:
    """What is written: the file, variables without their prefix, values of `--set`, and other arguments."""

    text: str | bytes | None = PLAIN
    environ: Mapping[str, str] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    arguments: Sequence[str] = ("-c", "dedup.yaml")

    def ended(self, part: str = "show") -> Ended:
        """What `config show`, or another part, makes of it."""
        files = dict(FILES) if self.text is None else {**FILES, "dedup.yaml": self.text}
        environ = {f"STREAMDEDUP_{name}": value for name, value in self.environ.items()}
        overrides = [word for override in self.overrides for word in ("--set", override)]
        return call(["config", part, *self.arguments, *overrides], environ, files)


def outcome(ended: Ended) -> Any:
    """The lines shown, by leaf, or the problems."""
    if ended.status == 0:
        return {"shown": dict(_shown(ended.out))}
    return {"status": ended.status, "problems": list(_problems(ended.err))}


def _shown(text: str) -> Iterator[tuple[str, str]]:
    """Each leaf's dotted name, with its value and origin as they are printed."""
    above: list[str] = []
    for line in filter(None, text.splitlines()):
        depth = (len(line) - len(line.lstrip())) // 2
        name, _, rest = line.strip().partition(":")
        above = [*above[:depth], name]
        if rest:
            yield ".".join(above), rest.strip()


_PROBLEM = re.compile(
    r"  (?P<place>--set|[^\s:]+(?::\d+)?): (?P<name>[^\s:=]+)(?: = (?P<value>.*?))?: ", re.DOTALL
)
_FATAL = re.compile(r"streamdedup: (?P<place>[^\s:]+(?::\d+)?): ")


def _problems(text: str) -> Iterator[str]:
    """Each problem's place, name and shown value, without its words; a file that cannot be read has only its place."""
    head, *lines = text.removesuffix("\n").split("\n")
    if not lines:
        found = _FATAL.match(head)
        yield found["place"] if found else "without a place"
    for line in lines:
        if not (found := _PROBLEM.match(line)):  # of no option
            yield line.strip().partition(": ")[0]
            continue
        value = "" if found["value"] is None else f" = {found['value']}"
        yield f"{found['place']}: {found['name']}{value}"


def changed(case: Case) -> Any:
    """The outcome, without the leaves that are as in `PLAIN`; None for one of those that are gone."""
    made = outcome(case.ended())
    if "shown" in made:
        plain = outcome(Case().ended())["shown"]
        made["shown"] = {
            name: made["shown"].get(name)
            for name in [*made["shown"], *(name for name in plain if name not in made["shown"])]
            if made["shown"].get(name) != plain.get(name)
        }
    return made


# Every leaf, with texts as they may be written for it. The n-th of all are written together.
WRITTEN: Mapping[str, Sequence[str]] = {
    "kafka.bootstrap_servers": ["b:1", "b:1,c:2", "[b:1, c:2]", "'[::1]:9092'", "' b:1 , c:2 '"],
    "kafka.group_id": ["other", "0123", "'yes'", "1:30", "1e5", "2024-01-01"],
    "kafka.group_instance_id": ["worker-0", "007", "a.b_c-d"],
    "kafka.client_id": ["me", "'null'", "true", "grün"],
    "kafka.record_path": ["objects", "columns"],
    "kafka.give_up_after_s": ["90s", "90", "1.5", "5000ms", "5m", "2h", "1d", "1e3"],
    "kafka.consumer": [
        "{session_timeout_ms: 10s, client_rack: a}",
        "{fetch_max_bytes: 64MiB}",
        "{}",
    ],
    "kafka.producer": ["{retry_backoff_ms: 200}", "{transaction_timeout_ms: 1m}", "{}"],
    "source.topic": ["in", "007", "a.b_c-d"],
    "source.topics": ["null", "null", "null"],
    "source.pattern": ["null", "null", "null"],
    "source.start": ["latest", "earliest"],
    "source.tombstones": ["judge", "drop", "pass"],
    "source.on_gap": ["skip", "stop"],
    "source.on_damaged": ["skip", "stop"],
    "source.on_growth": ["accept", "refuse"],
    "source.headers_max": ["1", "20_000", "1M"],
    "source.headers_bytes_max": ["1024", "64KiB", "1GiB"],
    "source.repartition.topic": ["by-key", "null", "null", "009"],
    "source.repartition.partitions": ["12", "null", "null", "1e4"],
    "source.repartition.unread_max": ["5k", "null", "null", "1_000"],
    "source.repartition.max_skew": ["null", "null", "null", "null"],
    "key.from": ["json", "json"],
    "key.field": ["url", "user.id", "[tenant]", "/user/id", "'[a, b]'", "5"],
    "key.parts": ["null", "null", "null"],
    "key.normalize": ["email", "email", "email", "email"],
    "key.email_preset": ["strict", "provider"],
    "key.email_tags": ["true", "no", "on"],
    "key.email_dots": ["yes", "false", "off"],
    "key.email_aliases": ["1", "0", "y", "n"],
    "key.hash": ["murmur3"],
    "key.on_malformed": ["drop", "dead_letter", "pass"],
    "allowlist.file": ["other.list"],
    "blocklist.file": ["one.list"] * 4,
    "blocklist.control_topic": ["changes"],
    "blocklist.on_positive": ["verify"] * 2,
    "blocklist.exact": ["one.exact", "~/one.exact"],
    "filter.kind": [
        "bloom",
        "window",
        "window",
        "counting",
        "bitmap",
        "exact",
        "blocked",
        "cuckoo",
    ],
    "filter.capacity": ["100_000", "5M", "1e5", "100k", "1.5M", "0012", " 7 "],
    "filter.error_rate": ["0.001", "1e-3", "1E-6", ".01", "0.5", "1e-9"],
    "filter.on_full": ["warn", "stop", "stop", "grow", "warn", "grow"],
    "filter.partition_headroom": ["0", "0.5", "1e1"],
    "filter.hash": ["murmur3"],
    "filter.probe": ["double", "standard", "standard", "double"],
    "filter.late": ["pass", "drop"],
    "filter.retention": ["null", "7d", "90s", "null"],
    "filter.generations": ["31", "16", "6_4"],
    "filter.refresh": ["no", "yes"],
    "filter.max_jump": ["null", "1h", "250ms"],
    "filter.max_size": ["null", "null", "null", "8GiB", "null", "64MB"],
    "sink.topic": ["out", "008", "a.b_c-e"],
    "sink.duplicates_topic": ["again"],
    "sink.blocked_topic": ["blocked"],
    "sink.dead_letter_topic": ["dead", "letters"],
    "sink.on_rejected": ["stop", "dead_letter"],
    "sink.create_topics": ["true", "yes", "on", "1", "y", "True", "TRUE"],
    "sink.compression": ["zstd", "gzip", "snappy", "none", "lz4"],
    "sink.shadow": ["true", "no", "off", "0", "n", "False"],
    "sink.on_gap": ["accept", "stop"],
    "delivery.guarantee": ["at_least_once"] * 2,
    "delivery.commit_interval_ms": ["250", "1s", "250ms", "0.5s"],
    "delivery.batch_events_max": ["5000", "5k", "5_000", "1e4"],
    "delivery.batch_bytes_max": ["4096", "64MiB", "1.5MB", "2kB", "1 MiB"],
    "delivery.max_in_flight": ["1", "100"],
    "delivery.open_transaction_s": ["90", "1m", "1.25"],
    "delivery.drain_s": ["10", "5m", "1500ms"],
    "snapshot.directory": ["/var/lib/dedup", "~/dedup", "here", "./a/../b", "7"],
    "snapshot.interval_s": ["0.1", "5m", "1d", "90 s"],
    "snapshot.keep": ["1", "100", "1e1"],
    "server.host": ["192.0.2.7", "::1", "localhost"],
    "server.port": ["9464", "0", "65535"],
}
WRONG: Mapping[str, Sequence[str]] = {
    "kafka.bootstrap_servers": [
        "a:b:c",
        "SSL://a:9092",
        "a:99999",
        "a:1,127.0.0.1",
        "''",
        "{a: 1}",
    ],
    "kafka.group_id": ["''", "[a]", "{a: b}"],
    "kafka.group_instance_id": ["a/b", "..", "''"],
    "kafka.client_id": ["''", "[a]"],
    "kafka.security_protocol": ["TLS", "ssl", "[SSL]"],
    "kafka.ssl_cafile": ["none.pem", "''", "[some.pem]"],
    "kafka.ssl_certfile": ["none.pem"],
    "kafka.ssl_keyfile": ["none.pem"],
    "kafka.ssl_check_hostname": ["maybe", "2", "''", "t h"],
    "kafka.allow_plaintext": ["maybe", "2", "''", "t h"],
    "kafka.schema_registry.allow_plaintext": ["maybe", "2", "''", "t h"],
    "kafka.ssl_password_file": ["none", "empty"],
    "kafka.sasl_mechanism": ["GSSAPI", "plain"],
    "kafka.sasl_plain_username": ["''", "[me]"],
    "kafka.sasl_plain_password_file": ["none", "line-end", "latin"],
    "kafka.sasl_oauth_token_provider": ["a.b.c", "a-b:c", "a:b:c"],
    "kafka.record_path": ["rows"],
    "kafka.schema_registry.url": ["registry:8081", "https://u:p@a", "ftp://a", "http://a?b"],
    "kafka.schema_registry.context": ["a/b"],
    "kafka.schema_registry.basic_auth_user": ["''"],
    "kafka.schema_registry.basic_auth_password_file": ["none", "empty"],
    "kafka.schema_registry.bearer_token_file": ["none", "empty"],
    "kafka.schema_registry.ssl_cafile": ["none.pem"],
    "kafka.schema_registry.ssl_certfile": ["none.pem"],
    "kafka.schema_registry.ssl_keyfile": ["none.pem"],
    "kafka.give_up_after_s": ["0", "1y", "many", "-1", "inf", "nan", "1:30"],
    "kafka.consumer": [
        "{session_timeout_ms: many, no_such: hunter2}",
        "{enable_auto_commit: true, session.timeout.ms: 5}",
        "{transaction_timeout_ms: 5}",
        "text",
        "[a]",
    ],
    "kafka.producer": [
        "{retry_backoff_ms: [5]}",
        "{acks: 1, linger_ms: 5}",
        "{client_rack: a}",
        "5",
    ],
    "source.topic": ["a b", "..", "''", "[a]"],
    "source.topics": ["[a b]", "[..]", "5", "{a: b}"],
    "source.pattern": ["5", "[a]"],
    "source.start": ["newest", "Earliest"],
    "source.tombstones": ["keep"],
    "source.on_gap": ["accept"],
    "source.on_damaged": ["pass"],
    "source.on_growth": ["yes"],
    "source.headers_max": ["0", "1000001", "many"],
    "source.headers_bytes_max": ["1023", "2GiB", "1 second"],
    "source.repartition.topic": ["a b", "..", "''", "[a]"],
    "source.repartition.partitions": ["0", "10001", "many", "-1"],
    "source.repartition.unread_max": ["0", "2G", "1s"],
    "source.repartition.max_skew": ["0", "7", "101y", "1.0001ms"],
    "key.from": ["jsn"],
    "key.field": ["''", "{a: b}", "[]", "['']", "[[a]]"],
    "key.parts": ["a", "{header: a}", "[]", "[a]", "[{heder: a}]", "[{header: ''}]"],
    "key.format": ["xml"],
    "key.framing": ["confluent"],
    "key.normalize": ["mail"],
    "key.email_preset": ["gmail"],
    "key.email_tags": ["maybe"],
    "key.email_dots": ["2"],
    "key.email_aliases": ["''"],
    "key.url_tracking": ["drop"],
    "key.url_slash": ["''"],
    "key.url_www": ["2"],
    "key.url_scheme": ["http"],
    "key.url_fragments": ["null"],
    "key.url_port": ["80"],
    "key.url_dot": ["''"],
    "key.url_order": ["keep"],
    "key.url_ignore": ["sid", "['']", "[a b]", "['utm_*']"],
    "key.hash": ["md5"],
    "key.on_malformed": ["skip"],
    "allowlist.file": ["none.list", "''"],
    "blocklist.file": ["none.list", "."],
    "blocklist.control_topic": ["a b"],
    "blocklist.on_positive": ["ask"],
    "blocklist.exact": ["''"],
    "filter.kind": ["fuse", "Bloom", "[bloom]"],
    "filter.capacity": ["0", "-1", "many", "1.5", "2e12", "100m", "[5]", "1:30", "1__0"],
    "filter.error_rate": ["0", "0.6", "nan", "inf", "one", "1%", "1e-16", "true"],
    "filter.on_full": ["decay"],
    "filter.max_size": ["100", "1 banana", "64mib", "2PiB"],
    "filter.partition_headroom": ["11", "-1", "nan"],
    "filter.hash": ["md5"],
    "filter.hash_key_file": ["none", "empty", "secret"],
    "filter.probe": ["enhanced"],
    "filter.retention": ["0", "7", "101y", "1.0001ms"],
    "filter.generations": ["1", "65", "eight"],
    "filter.late": ["never"],
    "filter.refresh": ["perhaps"],
    "filter.max_jump": ["3600", "0ms"],
    "sink.topic": ["a/b", "." * 250],
    "sink.duplicates_topic": ["a b"],
    "sink.blocked_topic": ["a b"],
    "sink.dead_letter_topic": ["a b"],
    "sink.on_rejected": ["drop"],
    "sink.create_topics": ["maybe"],
    "sink.compression": ["brotli", "LZ4"],
    "sink.shadow": ["maybe"],
    "sink.on_gap": ["skip"],
    "delivery.guarantee": ["at_most_once"],
    "delivery.commit_interval_ms": ["61s", "0", "0.5", "5 minutes"],
    "delivery.batch_events_max": ["2M", "0"],
    "delivery.batch_bytes_max": ["1kB", "2GiB", "1.5"],
    "delivery.max_in_flight": ["0", "101"],
    "delivery.open_transaction_s": ["500ms", "2d"],
    "delivery.drain_s": ["500ms", "2h"],
    "snapshot.directory": ["''", "~nobody-of-this-name/a"],
    "snapshot.interval_s": ["2d", "99ms"],
    "snapshot.keep": ["101", "0"],
    "server.host": ["''"],
    "server.port": ["-1", "65536", "9.5", "http", "0x10", "9_464"],
}
SECURE: Mapping[str, str] = {
    "kafka.security_protocol": "SASL_SSL",
    "kafka.ssl_cafile": "some.pem",
    "kafka.ssl_certfile": "some.pem",
    "kafka.ssl_keyfile": "some.pem",
    "kafka.ssl_check_hostname": "no",
    "kafka.ssl_password_file": "secret",
    "kafka.sasl_mechanism": "SCRAM-SHA-512",
    "kafka.sasl_plain_username": "me",
    "kafka.sasl_plain_password_file": "crlf",
    "filter.hash": "siphash",
    "filter.hash_key_file": "hash-key",
    "kafka.schema_registry.url": "https://registry.example/api/",
    "kafka.schema_registry.context": "eu",
    "kafka.schema_registry.basic_auth_user": "me",
    "kafka.schema_registry.basic_auth_password_file": "crlf",
    "kafka.schema_registry.ssl_cafile": "some.pem",
    "kafka.schema_registry.ssl_certfile": "some.pem",
    "kafka.schema_registry.ssl_keyfile": "some.pem",
    "key.format": "avro",
    "key.framing": "header",
}
OAUTH: Mapping[str, str] = {
    "kafka.security_protocol": "SASL_PLAINTEXT",
    "kafka.allow_plaintext": "true",
    "kafka.schema_registry.allow_plaintext": "yes",
    "kafka.sasl_mechanism": "OAUTHBEARER",
    "kafka.sasl_oauth_token_provider": "my.tokens:make",
    "kafka.schema_registry.url": "http://registry:8081",
    "kafka.schema_registry.bearer_token_file": "secret",
    "key.format": "protobuf",
    "key.framing": "id64",
    "key.normalize": "url",
    "key.url_tracking": "yes",
    "key.url_slash": "on",
    "key.url_www": "1",
    "key.url_scheme": "true",
    "key.url_fragments": "no",
    "key.url_port": "yes",
    "key.url_dot": "on",
    "key.url_order": "true",
    "key.url_ignore": "[sid, PHPSESSID]",
}
REQUIRED = dict.fromkeys(
    (
        "kafka.bootstrap_servers",
        "kafka.group_id",
        "source.topic",
        "key.field",
        "filter.capacity",
        "sink.topic",
        "snapshot.directory",
    )
)


def _together(written: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """The first text of each leaf, the second of each that has one, and so on."""
    for texts in zip_longest(*written.values()):
        leaves = zip(written, texts, strict=True)
        yield {leaf: text for leaf, text in leaves if text is not None}


def in_file(leaves: Mapping[str, str], plain: str = PLAIN) -> Case:
    """They are written into the file, over what stands in `plain`; those of a group in one line."""
    tree: dict[str, dict[str, str]] = {}
    for line in plain.splitlines():
        name, _, value = line.strip().partition(":")
        if line.startswith(" "):
            tree[next(reversed(tree))][name] = value.strip()
        else:
            tree[name] = {}
    groups: dict[str, dict[str, dict[str, str]]] = {}
    for leaf, text in leaves.items():
        section, name, *inner = leaf.split(".")
        if inner:
            groups.setdefault(section, {}).setdefault(name, {})[inner[0]] = text
        else:
            tree.setdefault(section, {})[name] = text
    for section, named in groups.items():
        for name, group in named.items():
            options = ", ".join(f"{option}: {text}" for option, text in group.items())
            tree.setdefault(section, {})[name] = f"{{{options}}}"
    lines = [
        line
        for section, values in tree.items()
        for line in (f"{section}:", *(f"  {name}: {text}" for name, text in values.items()))
    ]
    return Case("\n".join(lines) + "\n")


def in_environment(leaves: Mapping[str, str], text: str = PLAIN) -> Case:
    """They are set in the environment, where quotes are not YAML's, and nothing is null."""
    return Case(
        text,
        {
            leaf.upper().replace(".", "__"): "" if value == "null" else value.strip("'")
            for leaf, value in leaves.items()
        },
    )


def in_overrides(leaves: Mapping[str, str], text: str = PLAIN) -> Case:
    """They are given to `--set`."""
    return Case(text, overrides=[f"{leaf}={value}" for leaf, value in leaves.items()])


LAYERS = {"file": in_file, "environment": in_environment, "overrides": in_overrides}


def leaves() -> Any:
    """Every leaf from every layer, and from all of them together."""
    made: dict[str, Any] = {}
    batches = [*_together(WRITTEN), dict(SECURE), dict(OAUTH)]
    for number, batch in enumerate(batches):
        for layer, written_in in LAYERS.items():
            made[f"{number} in {layer}"] = changed(written_in(batch))
    first, second = batches[:2]
    text = in_file(first).text
    assert isinstance(text, str)
    made["file, environment"] = changed(in_environment(second, text))
    made["file, overrides"] = changed(in_overrides(second, text))
    some = {leaf: value for leaf, value in second.items() if leaf < "g"}
    both = Case(text, in_environment(second).environ, in_overrides(some).overrides)
    made["file, environment, overrides"] = changed(both)
    null = dict.fromkeys((leaf for leaf in first if leaf not in REQUIRED), "null")
    made["null over the file"] = changed(in_overrides(null, text))
    made["empty over the file"] = changed(in_environment(dict.fromkeys(null, ""), text))
    made["null in the file"] = changed(in_file(null))
    variables = in_environment(null).environ
    made["null is a text in the environment"] = changed(
        Case(environ=dict.fromkeys(variables, "null"))
    )
    made["required, null"] = changed(in_overrides(dict.fromkeys(REQUIRED, "null")))
    made["required, empty"] = changed(in_environment(dict.fromkeys(REQUIRED, "")))
    return made


def wrong_leaves() -> Any:
    """Wrong values of every leaf in every layer: the place, the name, and what is shown of it."""
    return {
        f"{number} in {layer}": changed(written_in(batch))
        for number, batch in enumerate(_together(WRONG))
        for layer, written_in in LAYERS.items()
    }


def _with(section: str, *lines: str) -> str:
    """`PLAIN` with lines in one of its sections, or in a further one."""
    added = "".join(f"  {line}\n" for line in lines)
    if f"\n{section}:\n" in f"\n{PLAIN}":
        return PLAIN.replace(f"{section}:\n", f"{section}:\n{added}", 1)
    return f"{PLAIN}{section}:\n{added}"


_SCREENING = PLAIN.replace("filter:\n  capacity: 1000\n", "filter: null\n").replace(
    "snapshot:\n  directory: var/snapshots\n", ""
)
_LISTED = ("blocklist.file=one.list",)
_GROUP = ("repartition:", "  topic: by-key", "  partitions: 12")
_SASL = ("kafka.security_protocol=SASL_SSL", "kafka.sasl_plain_username=me")

CASES: Mapping[str, Case] = {
    # where the configuration is
    "the file is an argument": Case(arguments=("dedup.yaml",)),
    "the file is in the environment": Case(environ={"CONFIG": "dedup.yaml"}, arguments=()),
    "an option wins over the environment": Case(environ={"CONFIG": "none.yaml"}),
    "an argument wins over an option": Case(arguments=("dedup.yaml", "-c", "none.yaml")),
    "no file is named": Case(arguments=()),
    "no file is named, only an empty one": Case(environ={"CONFIG": ""}, arguments=()),
    "the file in the environment is missing": Case(environ={"CONFIG": "none.yaml"}, arguments=()),
    "the file is missing": Case(text=None),
    "the file is a directory": Case(arguments=("-c", ".")),
    # what a file may be
    "empty": Case(""),
    "comments": Case("# nothing\n"),
    "null": Case("null\n"),
    "a list": Case("- a\n"),
    "a text": Case("text\n"),
    "with a byte order mark": Case(b"\xef\xbb\xbf" + PLAIN.encode()),
    "with Windows' line ends": Case(PLAIN.replace("\n", "\r\n")),
    "Latin 1": Case(b"kafka: \xe9\n"),
    "with a tab": Case(_with("source", "\tstart: latest")),
    "no YAML": Case(_with("source", "start: [latest")),
    "two documents": Case(f"{PLAIN}---\n{PLAIN}"),
    "begun with dashes": Case(f"---\n{PLAIN}"),
    "in one line": Case(
        "{kafka: {bootstrap_servers: 'b:1', group_id: g}, source: {topic: in}, key: {field: id},"
        " filter: {capacity: 5}, sink: {topic: out}, snapshot: {directory: d}}"
    ),
    "with an alias": Case(_with("source", "topic: &topic events").replace("  topic: events\n", "")),
    "with an anchor that is used": Case(
        _with("snapshot", "keep: &few 2") + "delivery:\n  max_in_flight: *few\n"
    ),
    "with a merge": Case(PLAIN + "delivery:\n  <<: {drain_s: 5}\n"),
    "with a tag": Case(_with("source", "start: !env START")),
    "with a tag of YAML": Case(_with("source", "start: !!str latest")),
    "with a tag of a secret": Case(_with("kafka", "ssl_password: !hunter2!x")),
    "with another tag of a secret": Case(_with("kafka", "ssl_password: !hunter2")),
    "with a name that is no text": Case(_with("source", "[a]: b")),
    "with a text over several lines": Case(_with("kafka", "client_id: >-", "  one", "  two")),
    "with a quoted null": Case(_with("kafka", "client_id: 'null'", 'group_instance_id: "null"')),
    "with all ways to write null": Case(
        _with("kafka", "client_id:", "group_instance_id: ~", "record_path: Null", "consumer: NULL")
    ),
    "with comments and empty lines": Case(
        "# first\n\n" + _with("source", "", "# why", "start: latest  # here")
    ),
    # names
    "a leaf twice": Case(_with("kafka", "group_id: other")),
    "a section twice": Case(PLAIN + "kafka:\n  group_id: other\n"),
    "an option of a client twice": Case(
        PLAIN.replace("source", "  consumer: {\n  x: 1,\n  x: 2}\nsource", 1)
    ),
    "dotted": Case(PLAIN + "sink.compression: zstd\n"),
    "dotted, within its section": Case(_with("kafka", "consumer.client_rack: a")),
    "dotted, of a client": Case(PLAIN + "kafka.consumer.client_rack: a\n"),
    "dotted, required": Case(PLAIN.replace("filter:\n  capacity: 1000", "filter.capacity: 1000")),
    "dotted, a secret": Case(PLAIN + "kafka.ssl_password: hunter2\n"),
    "dotted, unknown": Case(PLAIN + "delivery.drains: 1\n"),
    "unknown": Case(_with("kafka", "groupid: x", "zzzz: hunter2") + "zzzzzz: 5\n"),
    "unknown instead of a required one": Case(PLAIN.replace("group_id", "group.id")),
    "deeper than there is": Case(_with("source", "start: {a: b}")),
    "a section that is a text": Case(PLAIN + "delivery: text\n"),
    "a section that is a list": Case(PLAIN + "delivery: [drain_s]\n"),
    "a section that is null": Case(PLAIN + "delivery:\nserver: null\nblocklist: ~\n"),
    "a section that is empty": Case(PLAIN + "delivery: {}\n"),
    # the environment
    "lower case": Case(environ={"source__start": "latest"}),
    "mixed case of the name": Case(environ={"Source__Start": "latest"}),
    "with spaces": Case(environ={"KAFKA__CLIENT_ID": " me "}),
    "with quotes": Case(environ={"KAFKA__CLIENT_ID": "'me'", "SOURCE__START": "'latest'"}),
    "a list in the environment": Case(environ={"KEY__FIELD": "[a, 'b c']"}),
    "a JSON list in the environment": Case(environ={"KEY__FIELD": '["a", "b"]'}),
    "brokers as a list": Case(environ={"KAFKA__BOOTSTRAP_SERVERS": "[a:1, b:2]"}),
    "an IPv6 address is no list": Case(environ={"KAFKA__BOOTSTRAP_SERVERS": "[::1]:9092"}),
    "a list that is none": Case(environ={"KEY__FIELD": "[a, 'b]"}),
    "one underscore": Case(
        environ={
            "KAFKA_GROUP_ID": "hunter2",
            "KAFKA_SASL_PLAIN_PASSWORD": "hunter2",
            "KAFKA_CONSUMER": "hunter2",
            "KAFKA_CONSUMER_CLIENT_RACK": "hunter2",
            "KAFKA_PRODUCER_TRANSACTION_TIMEOUT_MS": "hunter2",
        }
    ),
    "one underscore, of a required one": Case(
        PLAIN.replace("  group_id: dedup\n", ""), environ={"KAFKA_GROUP_ID": "x"}
    ),
    "variables that are no options": Case(
        environ={
            "HOME": "x",
            "KAFKA": "x",
            "SOURCE": "x",
            "TEST_KAFKA__GROUP_ID": "x",
            "CACHE__X": "x",
        }
    ),
    "unknown variables": Case(
        environ={
            "KAFKA__GROUPID": "hunter2",
            "ZZZ__ZZZ": "hunter2",
            "SOURCE__START__X": "hunter2",
            "__X": "",
        }
    ),
    "a section in the environment": Case(environ={"DELIVERY": "{drain_s: 5}", "DELIVERY__": "x"}),
    "options of a client in the environment": Case(
        _with("kafka", "consumer: {client_rack: a, session_timeout_ms: 5s}"),
        environ={"KAFKA__CONSUMER": "{client_rack: b}", "KAFKA__PRODUCER__RETRY_BACKOFF_MS": "5s"},
    ),
    "options of a client in the environment that are none": Case(
        environ={"KAFKA__CONSUMER": "client_rack", "KAFKA__PRODUCER": "{a: b: c}"}
    ),
    # the command line
    "without a value": Case(overrides=["source.start"]),
    "with an empty value": Case(overrides=["source.start="]),
    "with spaces around": Case(overrides=[" source.start = latest "]),
    "the last wins": Case(overrides=["source.start=latest", "source.start=earliest"]),
    "with a second =": Case(overrides=["kafka.client_id=a=b"]),
    "a value that is no YAML": Case(overrides=["kafka.client_id=[a", "source.start='latest"]),
    "a name that is none": Case(
        overrides=["=x", "a b=c", "source.=x", ".start=x", "source..start=x"]
    ),
    "a section": Case(overrides=["delivery={drain_s: 5, max_in_flight: null}"]),
    "a section, null": Case(PLAIN + "delivery: {drain_s: 5}\n", overrides=["delivery=null"]),
    "unknown overrides": Case(
        overrides=["kafka.groupid=hunter2", "zzz=hunter2", "source.start.x=1"]
    ),
    "options of a client are merged by name": Case(
        _with("kafka", "consumer: {client_rack: a, session_timeout_ms: 5s}"),
        environ={"KAFKA__CONSUMER__SESSION_TIMEOUT_MS": "6s"},
        overrides=[
            "kafka.consumer.fetch_max_bytes=1MiB",
            "kafka.consumer={max_poll_interval_ms: 1m}",
        ],
    ),
    "an option of a client is null again": Case(
        _with("kafka", "consumer:", "  client_rack: a", "  session_timeout_ms: 5s"),
        overrides=["kafka.consumer.client_rack=null"],
    ),
    # a group of options
    "a group": Case(_with("source", *_GROUP)),
    "a group in one line": Case(_with("source", "repartition: {topic: by-key, partitions: 12}")),
    "a group in the environment": Case(
        environ={"SOURCE__REPARTITION": "{topic: by-key, partitions: 12, unread_max: 5k}"}
    ),
    "options of a group are merged by name": Case(
        _with("source", *_GROUP),
        environ={"SOURCE__REPARTITION__PARTITIONS": "24"},
        overrides=["source.repartition={unread_max: 5k, topic: other}"],
    ),
    "a group is null again": Case(_with("source", *_GROUP), overrides=["source.repartition=null"]),
    "a group is empty again": Case(_with("source", *_GROUP), environ={"SOURCE__REPARTITION": ""}),
    "a group, null and then set": Case(
        _with("source", *_GROUP),
        environ={"SOURCE__REPARTITION": ""},
        overrides=["source.repartition.topic=other", "source.repartition.partitions=3"],
    ),
    "a group, null and then half of it set": Case(
        _with("source", *_GROUP),
        environ={"SOURCE__REPARTITION": ""},
        overrides=["source.repartition.topic=other"],
    ),
    "a group for a window": Case(
        _with("source", *_GROUP),
        overrides=["filter.kind=window", "filter.retention=7d", "source.repartition.max_skew=36h"],
    ),
    "several inputs": Case(
        _with("source", *_GROUP), overrides=["source={topic: null, topics: [in-1, in-2]}"]
    ),
    "inputs of a pattern": Case(
        _with("source", *_GROUP), overrides=["source={topic: null, pattern: ^in-.*}"]
    ),
    "several inputs without a middle topic": Case(
        overrides=["source={topic: null, topics: [in-1, in-2]}"]
    ),
    "inputs that are the output, twice, and of Kafka": Case(
        _with("source", *_GROUP),
        overrides=["source={topic: null, topics: [a, a, __b, events-unique]}"],
    ),
    "inputs by a name and a pattern that is none": Case(
        _with("source", *_GROUP), overrides=["source.pattern='in-['"]
    ),
    "a group without what it requires": Case(overrides=["source.repartition.unread_max=5k"]),
    "a group without one that it requires": Case(_with("source", *_GROUP[:2])),
    "a group that is null": Case(_with("source", "repartition:")),
    "a group that is empty": Case(_with("source", "repartition: {}")),
    "a group that is a text": Case(_with("source", "repartition: by-key")),
    "a group that is a list": Case(environ={"SOURCE__REPARTITION": "[topic, partitions]"}),
    "a group that is no YAML": Case(environ={"SOURCE__REPARTITION": "{topic: a: b}"}),
    "a leaf of a group twice": Case(_with("source", *_GROUP, "  topic: other")),
    "a leaf of a group, deeper": Case(overrides=["source.repartition.topic={a: b}"]),
    "an unknown leaf of a group": Case(_with("source", *_GROUP, "  hunter2: x", "  topik: x")),
    "a misspelt leaf that a group requires": Case(
        _with("source", *_GROUP[:2], "  partition: 12"), overrides=["sink.topic=events"]
    ),
    "a tag in a group": Case(_with("source", "repartition: {topic: !env X, partitions: 12}")),
    "dotted, of a group": Case(PLAIN + "source.repartition.topic: by-key\n"),
    "dotted, of a group, within its section": Case(_with("source", "repartition.topic: by-key")),
    "one underscore, of a group": Case(
        environ={
            "SOURCE_REPARTITION": "hunter2",
            "SOURCE_REPARTITION_TOPIC": "hunter2",
            "SOURCE__REPARTITION_UNREAD_MAX": "hunter2",
        }
    ),
    "a middle topic that is the input": Case(
        _with("source", *_GROUP), overrides=["source.topic=by-key"]
    ),
    "a middle topic that is the output": Case(
        _with("source", *_GROUP), overrides=["sink.topic=by-key", "source.repartition.partitions=0"]
    ),
    "a middle topic and a window by time": Case(
        _with("source", *_GROUP), overrides=["filter={kind: window, retention: 7d}"]
    ),
    "a middle topic and a window by count": Case(
        _with("source", *_GROUP), overrides=["filter.kind=window"]
    ),
    "a middle topic, at least once": Case(
        _with("source", *_GROUP), overrides=["delivery.guarantee=at_least_once"]
    ),
    "a middle topic and the record's key": Case(
        _with("source", *_GROUP), overrides=["key={from: key, field: null}"]
    ),
    "a middle topic, screening": Case(
        _SCREENING, overrides=[*_LISTED, "source.repartition={topic: by-key, partitions: 12}"]
    ),
    # secrets
    "secrets in the file": Case(
        _with("kafka", "ssl_password: hunter2", "sasl_plain_password: hunter2") + "key: null\n"
    ),
    "secrets on the command line": Case(
        overrides=[
            "kafka.ssl_password=hunter2",
            "kafka.sasl_plain_password hunter2",
            "filter.hash_key: hunter2",
            "filter.hash_key=!hunter2!x",
        ]
    ),
    "secrets that are null": Case(
        _with("kafka", "ssl_password: null"), overrides=["filter.hash_key=null"]
    ),
    "secrets in the environment": Case(
        environ={
            "KAFKA__SASL_PLAIN_PASSWORD": "hunter2",
            "KAFKA__SSL_PASSWORD": "hunter2",
            "FILTER__HASH_KEY": "00112233445566778899AAbbccddeeff",
        },
        overrides=[
            *_SASL,
            "kafka.sasl_mechanism=PLAIN",
            "kafka.ssl_certfile=some.pem",
            "filter.hash=siphash",
            "kafka.ssl_keyfile=some.pem",
        ],
    ),
    "a secret and its file": Case(
        environ={"KAFKA__SASL_PLAIN_PASSWORD": "hunter2"},
        overrides=[*_SASL, "kafka.sasl_mechanism=PLAIN", "kafka.sasl_plain_password_file=secret"],
    ),
    "a secret that is wrong": Case(
        environ={"FILTER__HASH_KEY": "hunter2"}, overrides=["filter.hash=siphash"]
    ),
    "a secret that means nothing": Case(
        environ={"KAFKA__SASL_PLAIN_PASSWORD": "hunter2", "FILTER__HASH_KEY": "0" * 32}
    ),
    "a secret from an empty file": Case(
        overrides=[*_SASL, "kafka.sasl_mechanism=PLAIN", "kafka.sasl_plain_password_file=empty"]
    ),
    # what contradicts itself: the place of the leaf at fault
    "SASL without a mechanism": Case(overrides=["kafka.security_protocol=SASL_SSL"]),
    "PLAIN without a user": Case(
        overrides=["kafka.security_protocol=SASL_SSL", "kafka.sasl_mechanism=PLAIN"]
    ),
    "OAUTHBEARER without tokens": Case(
        overrides=["kafka.security_protocol=SASL_SSL", "kafka.sasl_mechanism=OAUTHBEARER"]
    ),
    "OAUTHBEARER with a user": Case(
        overrides=[
            *_SASL,
            "kafka.sasl_mechanism=OAUTHBEARER",
            "kafka.sasl_oauth_token_provider=a:b",
        ]
    ),
    "SASL that is not spoken": Case(
        _with("kafka", "sasl_plain_username: me", "sasl_mechanism: PLAIN")
    ),
    "TLS that is not spoken": Case(
        _with("kafka", "ssl_cafile: some.pem"), overrides=["kafka.ssl_check_hostname=no"]
    ),
    "half a certificate": Case(
        overrides=["kafka.security_protocol=SSL", "kafka.ssl_certfile=some.pem"]
    ),
    "the other half": Case(overrides=["kafka.security_protocol=SSL", "kafka.ssl_keyfile=some.pem"]),
    "a passphrase of nothing": Case(
        overrides=["kafka.security_protocol=SSL", "kafka.ssl_password_file=secret"]
    ),
    "no field": Case(PLAIN.replace("key:\n  field: id\n", "")),
    "no field of a header": Case(overrides=["key.from=header", "key.field=null"]),
    "a field of the record's key": Case(overrides=["key.from=key"]),
    "the record's key": Case(overrides=["key.from=key", "key.field=null"]),
    "the value": Case(overrides=["key={from: value, field: null}"]),
    "a header": Case(overrides=["key.from=header", "key.field=id"]),
    "two headers": Case(overrides=["key.from=header", "key.field=[a, b]"]),
    "a header of ours": Case(overrides=["key.from=header", "key.field=streamdedup.verdict"]),
    "another header of ours": Case(overrides=["key.from=header", "key.field=streamdedup.rule"]),
    "a wrong pointer": Case(overrides=["key.field=/a~2"]),
    "parts beside a field": Case(overrides=["key.parts=[{header: a}]"]),
    "parts": Case(overrides=["key.field=null", "key.parts=[{header: a}, {field: [b, c]}]"]),
    "a part of both": Case(overrides=["key.field=null", "key.parts=[{header: a, field: b}]"]),
    "rules of addresses without them": Case(
        _with("key", "email_preset: strict", "email_tags: no"), environ={"KEY__EMAIL_DOTS": "no"}
    ),
    "rules of URLs without them": Case(_with("key", "normalize: email", "url_slash: true")),
    "siphash without a key": Case(overrides=["filter.hash=siphash"]),
    "a key without siphash": Case(overrides=["filter.hash_key_file=hash-key"]),
    "two hashes": Case(overrides=["key.hash=siphash"]),
    "one hash, twice": Case(overrides=["key.hash=murmur3"]),
    "dead letters without a topic": Case(
        _with("sink", "on_rejected: dead_letter"), overrides=["key.on_malformed=dead_letter"]
    ),
    "dead letters": Case(overrides=["sink.dead_letter_topic=dead"]),
    "dead letters of some": Case(
        overrides=["sink.dead_letter_topic=dead", "sink.on_rejected=stop"]
    ),
    "one topic twice": Case(
        overrides=["sink.topic=events", "sink.duplicates_topic=dead", "sink.dead_letter_topic=dead"]
    ),
    "the topic of changes twice": Case(overrides=[*_LISTED, "blocklist.control_topic=events"]),
    "refresh, exactly once": Case(
        overrides=["filter.kind=window", "filter.retention=7d", "filter.refresh=yes"]
    ),
    "refresh, at least once": Case(
        overrides=["filter.kind=window", "filter.refresh=yes", "delivery.guarantee=at_least_once"]
    ),
    "a window's options without it": Case(
        _with(
            "filter",
            "retention: 7d",
            "generations: 16",
            "late: drop",
            "refresh: yes",
            "max_jump: 1h",
        )
    ),
    "a window's options without a time": Case(
        overrides=["filter.kind=window", "filter.late=drop", "filter.max_jump=1h"]
    ),
    "a window too short": Case(overrides=["filter.kind=window", "filter.retention=5ms"]),
    "a window by count that grows": Case(overrides=["filter.kind=window", "filter.on_full=grow"]),
    "a window that grows": Case(
        overrides=["filter.kind=window", "filter.retention=7d", "filter.max_size=1GiB"]
    ),
    "a window that stops": Case(
        overrides=["filter.kind=window", "filter.retention=7d", "filter.on_full=stop"]
    ),
    "a window": Case(overrides=["filter.kind=window", "filter.retention=7d"]),
    "a bitmap": Case(overrides=["filter.kind=bitmap", "filter.error_rate=0.01"]),
    "a bitmap that grows": Case(overrides=["filter.kind=bitmap", "filter.on_full=grow"]),
    "a size for what does not grow": Case(
        overrides=["filter.on_full=stop", "filter.max_size=1GiB"]
    ),
    "a probe that is not probed": Case(overrides=["filter.kind=cuckoo", "filter.probe=double"]),
    # what fits
    "blocked, with fewer errors than it can": Case(
        overrides=["filter.kind=blocked", "filter.error_rate=1e-12"]
    ),
    "blocked, with few errors": Case(
        overrides=["filter.kind=blocked", "filter.error_rate=1e-12", "filter.on_full=grow"]
    ),
    "cuckoo, with fewer errors than it can": Case(
        overrides=["filter.kind=cuckoo", "filter.capacity=1G", "filter.error_rate=1e-15"]
    ),
    "dleft, too large": Case(
        _with("filter", "kind: dleft"),
        overrides=["filter.capacity=1000G", "filter.error_rate=1e-9"],
    ),
    "bloom, too large": Case(overrides=["filter.capacity=1000G", "filter.error_rate=1e-15"]),
    "counting, the largest": Case(overrides=["filter.kind=counting", "filter.capacity=1000G"]),
    "exact, too large": Case(overrides=["filter.kind=exact", "filter.capacity=1000G"]),
    "window, too large": Case(
        overrides=["filter.kind=window", "filter.capacity=1000G", "filter.error_rate=1e-15"]
    ),
    "dlcbf, too large": Case(overrides=["filter.kind=dlcbf", "filter.capacity=1000G"]),
    "less memory than it begins with": Case(
        overrides=["filter.max_size=1KiB", "filter.capacity=1M"]
    ),
    "less memory than it begins with, of another kind": Case(
        _with("filter", "max_size: 1MiB", "kind: cuckoo"), environ={"FILTER__CAPACITY": "1M"}
    ),
    # lists
    "a block list": Case(overrides=_LISTED),
    "what means nothing without a block list": Case(
        _with("blocklist", "control_topic: changes", "on_positive: verify"),
        overrides=["allowlist.file=other.list", "sink.blocked_topic=blocked"],
    ),
    "a store that is not asked": Case(overrides=[*_LISTED, "blocklist.exact=one.exact"]),
    "a list of joined keys": Case(overrides=[*_LISTED, "key.field=[a, b]"]),
    "a list and a field in a list": Case(overrides=[*_LISTED, "key.field=[a]"]),
    # no filter
    "screening": Case(_SCREENING, overrides=_LISTED),
    "screening, by kind": Case(_SCREENING.replace("null", "{kind: none}"), overrides=_LISTED),
    "screening without a list": Case(_SCREENING),
    "screening, with options of a filter": Case(
        _SCREENING.replace("null", "{kind: none, capacity: 5, error_rate: 0.1}"),
        environ={"FILTER__ON_FULL": "warn"},
        overrides=_LISTED,
    ),
    "screening, with snapshots": Case(
        _SCREENING + "snapshot:\n  directory: d\n", overrides=[*_LISTED, "snapshot.keep=5"]
    ),
    "screening, with a topic of duplicates": Case(
        _SCREENING, overrides=[*_LISTED, "sink.duplicates_topic=again"]
    ),
    "a null takes the filter back, but not its hash": Case(
        _with("filter", "hash: siphash", "error_rate: 0.1"),
        environ={"FILTER__HASH_KEY": "0" * 32, "FILTER__ON_FULL": "warn"},
        overrides=["filter=null", *_LISTED],
    ),
    "a filter again": Case(
        _SCREENING,
        environ={"SNAPSHOT__DIRECTORY": "d"},
        overrides=["filter={kind: exact, capacity: 5}"],
    ),
    "a filter of nothing": Case(_SCREENING.replace(" null", ""), overrides=_LISTED),
    "a filter null in the environment": Case(environ={"FILTER": "null"}, overrides=_LISTED),
    # more than one problem
    "all at once": Case(
        "kafka:\n  groupid: x\n  bootstrap_servers: a\n  group_id: g\n  group_id: h\nfilter:\n  capacity: 0\n"
        "  error_rate: 2\nkey:\n  from: value\n  field: id\nzzz: 5\nsink:\n  topic: out\n",
        environ={"SOURCE__START": "newest", "SINK_TOPIC": "x", "SINK__ON_GAP": "skip"},
        overrides=["delivery.drain_s=1ms", "snapshot.directory", "source.on_gap=accept"],
    ),
    "what follows is not told": Case(
        overrides=[
            "kafka.security_protocol=TLS",
            "kafka.sasl_plain_username=me",
            "sink.topic=events",
        ]
    ),
    "long values are cut": Case(
        overrides=["source.start=" + "x" * 500, "source.on_gap=" + "é" * 81]
    ),
    "values of other scripts": Case(overrides=["source.start='日本 \"x\"'", "source.topic=日本"]),
}


def cases() -> Any:
    """What becomes of each case."""
    return {name: changed(case) for name, case in CASES.items()}


def plain() -> Any:
    """The smallest configuration, whole: every leaf with its default; and what `check` says of right and wrong."""
    return {
        **outcome(Case().ended()),
        "text": Case().ended().out.splitlines(),
        "check": Case().ended("check").status,
        "check, wrong": Case("").ended("check").status,
        "check, without its last argument": Case(arguments=("-c",)).ended("check").status,
    }


MISSPELT = (
    *("kafka.groupid", "kafka.bootstrap.servers", "kafka.group.id", "kafka.sasl.password"),
    *("kafka.sasl_username", "kafka.session.timeout.ms", "kafka.session_timeout_ms", "brokers"),
    *("kafka.transaction.timeout.ms", "kafka.auto.offset.reset", "kafka.topic", "sinks.topic"),
    *("snapshots.dir", "group.id", "key.path", "filter.capacty", "delivery.commit-interval-ms"),
    *(
        "kafka.group_id.x",
        "zzzzzz",
        "topic",
        "capacity",
        "metadata.broker.list",
        "compression.type",
    ),
    *(
        "kafka.consumer.sesion_timeout_ms",
        "kafka.consumer.retry_backoff_mss",
        "kafka.producer.acks",
    ),
    *("kafka.enable.auto.commit", "ssl.ca.location", "max.poll.records", "batch.size", "port"),
    *("repartition", "repartition.topic", "source.repartitions.topic", "source.partitions"),
    *("source.repartition.topik", "source.repartition.max_unread", "source.repartition.hunter2"),
    *("source.repartition_unread_max", "source.repart", "source.repartition.topic.x"),
    *("server.prot", "sever.port", "filter.false_positive_rate", "fetch.wait.max.ms", "linger.ms"),
)


def suggestions() -> Any:
    """The options and variables that are named to who misspelt one."""
    return {
        name: {
            "--set": _named(Case(overrides=[f"{name}=x"])),
            "variable": _named(Case(environ={name.upper().replace(".", "__"): "x"})),
        }
        for name in MISSPELT
    }


_OPTION = re.compile(r"STREAMDEDUP_[A-Z_]+|(?<![\w.])[a-z]+(?:\.[a-z_]+)+(?![\w.]*\w)")


def _named(case: Case) -> list[str]:
    """The options in the words of a refusal, but for the one that was written."""
    lines = case.ended().err.splitlines()[1:]
    return [name for line in lines for name in _OPTION.findall(line.split(": ", 2)[2])]


def schema() -> Any:
    """The JSON Schema for editors, without words and without the names of its parts."""
    made = json.loads(call(["config", "schema"]).out)
    parts = made.pop("$defs", {})
    return _plain(made, parts)


_WORDS = ("title", "description", "examples")


def _plain(part: Any, parts: Mapping[str, Any]) -> Any:
    """One schema: references are replaced by what they refer to, words are left out."""
    if not isinstance(part, dict):
        return part
    made: dict[str, Any] = {}
    for name, value in part.items():
        if name == "$ref":
            made |= _plain(parts[value.rpartition("/")[2]], parts)
        elif name == "properties":
            made[name] = {option: _plain(schema, parts) for option, schema in value.items()}
        elif name in ("anyOf", "allOf", "oneOf"):
            made[name] = [_plain(schema, parts) for schema in value]
        elif name not in _WORDS:
            made[name] = _plain(value, parts) if name in _SCHEMAS else value
    return made


_SCHEMAS = ("items", "additionalProperties", "if", "then", "else", "not")
