"""Leaves that do not fit together."""

from collections.abc import Sequence
from pathlib import Path

from streamdedup.settings import show
from tests.rows import every
from tests.settings.minimal import problems, read

_MIDDLE = ["source.repartition={topic: by-key, partitions: 12}"]
_REGISTRY = ["kafka.schema_registry={url: https://registry}"]
_NO_FIELD = ["key.field=null"]
_PARTS = [*_NO_FIELD, "key.parts=[{header: tenant}, {field: [after.id, /before/id]}]"]
_AVRO = ["key.format=avro", *_REGISTRY]
_INPUTS = [*_MIDDLE, "source.topic=null"]
_LISTED = ["blocklist.file=LIST"]  # a file that is there
_SCREENS = ["filter=null", *_LISTED]


CONTRADICTIONS = [
    (
        ["server.port=9464", "server.probe_port=9464"],
        "server.probe_port = '9464': is the same as server.port; set another one, or unset it",
    ),
    (
        ["server.hosts=[a.example]"],
        "server.hosts = a list: means nothing without server.port; set that",
    ),
    (["key.field=null"], "key.field: is required with key.from: json; name the field"),
    (
        ["key.from=header", "key.field=null"],
        "key.field: is required with key.from: header; name the header",
    ),
    (["key.from=key"], "key.field: means nothing with key.from: key; delete it"),
    (["key.from=value"], "key.field: means nothing with key.from: value"),
    (["key.from=header", "key.field=[a, b]"], "must be one name, not a list"),
    (
        ["key.from=key", "key.field=null", "key.format=avro"],
        "key.format = 'avro': means nothing with key.from: key; delete it, or set key.from: json",
    ),
    (
        ["key.format=protobuf"],
        "kafka.schema_registry.url: is required with key.format: protobuf; set the address of the registry",
    ),
    (
        ["key.format=json_schema", *_REGISTRY],
        "kafka.schema_registry.url: means nothing with key.format: json_schema, which needs no registry;"
        " unset it, or set key.format: avro or protobuf",
    ),
    (
        [*_AVRO, "kafka.schema_registry.basic_auth_user=me"],
        "kafka.schema_registry.basic_auth_password: is required with kafka.schema_registry.basic_auth_user",
    ),
    (
        [*_AVRO, f"kafka.schema_registry.ssl_certfile={__file__}"],
        "kafka.schema_registry.ssl_keyfile: is required with kafka.schema_registry.ssl_certfile",
    ),
    (
        [
            "key.format=avro",
            f"kafka.schema_registry={{url: 'http://registry', ssl_cafile: {__file__}}}",
        ],
        "kafka.schema_registry.ssl_cafile: means nothing with an address of http",
    ),
    (["key.field=/a~b"], "holds a wrong JSON Pointer; write ~0 for ~"),
    (["key.field=[id, /a~2]"], "holds a wrong JSON Pointer"),
    (["key.parts=[{field: a}]"], "key.field: means nothing with key.parts; delete one"),
    (
        [*_PARTS, "key.from=header"],
        "key.from = 'header': means nothing with key.parts, of which each says what it is",
    ),
    (
        [*_NO_FIELD, "key.parts=[{header: a}]", "key.format=json_schema"],
        "key.format = 'json_schema': means nothing without a field in key.parts; delete it",
    ),
    (
        [*_PARTS, "key.format=avro"],
        "kafka.schema_registry.url: is required with key.format: avro",
    ),
    (
        [*_NO_FIELD, "key.parts=[{field: a}, {header: b, field: c}]"],
        "has both of `header` and `field` in part 2; write {header: NAME} or {field: PATH}",
    ),
    (
        [*_NO_FIELD, "key.parts=[{header: null}]"],
        "has neither of `header` and `field` in part 1; write {header: NAME}",
    ),
    ([*_NO_FIELD, "key.parts=[{field: [a, /~b]}]"], "holds a wrong JSON Pointer"),
    (
        [*_NO_FIELD, "key.parts=[{header: [a, streamdedup.verdict]}]"],
        "must not be streamdedup.verdict: streamdedup writes that header itself",
    ),
    (
        [*_NO_FIELD, "key.parts=[{field: a, field: b}]"],
        "key.parts: has a name twice in one mapping; delete one of them",
    ),
    (
        ["key.on_malformed=dead_letter"],
        "key.on_malformed = 'dead_letter': needs sink.dead_letter_topic",
    ),
    (
        ["sink.on_rejected=dead_letter"],
        "sink.on_rejected = 'dead_letter': needs sink.dead_letter_topic",
    ),
    (
        ["key.from=header", "key.field=streamdedup.rule"],
        "must not be streamdedup.rule: streamdedup writes that header itself",
    ),
    (
        ["filter.capacity=900G"],
        "filter.capacity = '900G': does not fit filter.kind: cuckoo: it takes 2.58 TiB, and the most is 1 TiB"
        " (with on_full: grow, the first stage gets half of filter.error_rate); set filter.capacity to 348G at"
        " most, or raise filter.error_rate",
    ),
    (
        ["filter.capacity=900G", "filter.on_full=stop"],
        "filter.capacity = '900G': does not fit filter.kind: cuckoo: it takes 2.48 TiB, and the most is 1 TiB;"
        " set filter.capacity to 363G at most, or raise filter.error_rate",
    ),
    (
        ["filter.kind=bitmap", "filter.capacity=100M"],
        "filter.capacity = '100M': does not fit filter.kind: bitmap: it takes 11.4 TiB, and the most is 1 TiB;"
        " set filter.capacity to 8M at most",
    ),
    (
        ["filter.kind=window", "filter.capacity=500G"],
        "filter.capacity = '500G': does not fit filter.kind: window: it takes ",
    ),
    (
        ["filter.kind=blocked", "filter.error_rate=1e-12"],
        "filter.error_rate = '1e-12': does not fit filter.kind: blocked: its lowest error rate is 1e-09;"
        " raise it, or choose another filter.kind",
    ),
    (
        ["filter.kind=exact", "filter.capacity=1G", "filter.error_rate=1e-15"],
        "filter.error_rate = '1e-15': does not fit filter.kind: exact: with fingerprints of 8 bytes "
        "its error rate is",
    ),
    (
        ["filter.kind=dleft", "filter.capacity=1G", "filter.error_rate=1e-15"],
        "filter.error_rate = '1e-15': does not fit filter.kind: dleft: it takes remainders of 56 bits",
    ),
    (
        ["filter.capacity=100M", "filter.max_size=1KiB"],
        "filter.max_size = '1KiB': is less than the filters start with, which is 315792560B for "
        "filter.capacity at half of filter.error_rate; raise it",
    ),
    (
        ["filter.kind=window", "filter.retention=6ms"],
        "filter.retention = '6ms': is too short for 31 generations: it is split into 30 of at least 1ms each",
    ),
    (
        ["filter.refresh=true"],
        "filter.refresh = 'true': means nothing with filter.kind: cuckoo",
    ),
    (
        ["key.hash=murmur3"],
        "key.hash = 'murmur3': differs from filter.hash: siphash; set filter.hash: murmur3 to keep that hash,"
        " or delete it",
    ),
    (
        ["filter.kind=cuckoo", "filter.probe=double"],
        "filter.probe = 'double': means nothing with filter.kind: cuckoo; set probe: "
        "standard, or choose bitmap, bloom, counting",
    ),
    (["sink.topic=events"], "sink.topic: must differ from source.topic"),
    (
        [*_MIDDLE, "source.repartition.topic=events"],
        "source.repartition.topic: must differ from source.topic; name another topic",
    ),
    (
        [*_MIDDLE, "sink.topic=by-key"],
        "source.repartition.topic: must differ from sink.topic; name another topic",
    ),
    *(
        (
            [*_MIDDLE, f"sink.{name}=by-key"],
            f"source.repartition.topic: must differ from sink.{name}",
        )
        for name in ("duplicates_topic", "dead_letter_topic")
    ),
    (
        ["source={topics: [a, b]}", "source.topic=null"],
        "needs source.repartition: a key may come in several topics",
    ),
    (
        ["source.pattern=a-.*", "source.topic=null"],
        "source.pattern: needs source.repartition: a key may come in several topics",
    ),
    ([*_MIDDLE, "source.topic=null"], "source.topic: is required; name the topic to read"),
    (
        [*_MIDDLE, "source.pattern=a-.*"],
        "source.pattern: does not go with source.topic; set one of them",
    ),
    ([*_INPUTS, "source={topics: [a, b, a]}"], "names a twice; delete one of them"),
    ([*_INPUTS, "source={topics: []}"], "must name a topic"),
    *(
        (options, f"must not name {internal}: topics with __")
        for internal in ("__consumer_offsets", "__transaction_state", "__own")
        for options in (
            [f"source.topic={internal}"],
            [*_INPUTS, f"source={{topics: [a, {internal}]}}"],
            [*_INPUTS, f"source={{topics: [{internal}]}}"],
            [f"sink.topic={internal}"],
            [f"sink.dead_letter_topic={internal}"],
            [f"source.repartition={{topic: {internal}, partitions: 2}}"],
        )
    ),
    *(
        (
            [*_INPUTS, f"source={{pattern: '{pattern}'}}"],
            ": can match no topic",
        )
        for pattern in ("", " ", "()", "^$", "|", " events", "a,b", "a/.*", "é.*", "__.*")
    ),
    *(
        (
            [*_INPUTS, "sink.dead_letter_topic=letters", f"source={{topics: [a, {own}]}}"],
            f"{leaf}: must not be in source.topics: it would be a loop",
        )
        for leaf, own in {
            "sink.topic": "events-unique",
            "source.repartition.topic": "by-key",
            "sink.dead_letter_topic": "letters",
        }.items()
    ),
    *(
        ([*_INPUTS, f"source.pattern={pattern}"], why)
        for pattern, why in {
            "a-[": "is no regular expression",
            "(a+)+": "could take too long on a long name",
            "a.*b.*c.*d.*": "could take too long on a long name",
            "(a|a)*": "could take too long on a long name",
            f"{'a?' * 40}": "could take too long on a long name",
            "a" * 1001: "must have at most 1000 characters",
        }.items()
    ),
    (
        [*_MIDDLE, "source.repartition.max_skew=1h"],
        "source.repartition.max_skew = '1h': means nothing without filter.kind: window and filter.retention,"
        " because then no event is late; unset it, or set these",
    ),
    (
        [*_MIDDLE, f"kafka.group_id={'g' * 32_756}"],
        "kafka.group_id: is too long for source.repartition, whose group has -repartition behind it: that takes"
        " 32768 bytes, and Kafka allows 32767; choose a shorter one",
    ),
    (
        ["sink.duplicates_topic=events-unique"],
        "sink.duplicates_topic: must differ from sink.topic",
    ),
    (
        ["sink.duplicates_headers=true"],
        "sink.duplicates_headers = 'true': means nothing without sink.duplicates_topic; set that topic, or unset"
        " duplicates_headers",
    ),
    (
        ["sink.dead_letter_topic=events"],
        "sink.dead_letter_topic: must differ from source.topic",
    ),
    *(
        (
            [*_LISTED, *_MIDDLE, f"{leaf}=by-key"],
            f"source.repartition.topic: must differ from {leaf}",
        )
        for leaf in ("blocklist.control_topic", "sink.blocked_topic")
    ),
    # What goes with a block list.
    *(
        (
            [f"{leaf}={value}"],
            f"{leaf}: means nothing without blocklist.file; set blocklist.file, or",
        )
        for leaf, value in {
            "allowlist.file": "LIST",
            "blocklist.control_topic": "blocked",
            "sink.blocked_topic": "blocked",
        }.items()
    ),
    (
        ["blocklist.on_positive=verify"],
        "blocklist.on_positive = 'verify': means nothing without blocklist.file",
    ),
    (
        [*_LISTED, "blocklist.exact=/var/lib/x.exact"],
        "blocklist.exact: means nothing with blocklist.on_pos",
    ),
    # A list would never match keys of several fields, without a word.
    (
        [*_LISTED, "key.field=[tenant, id]"],
        "needs keys of one field, but key.field names several",
    ),
    ([*_LISTED, *_PARTS], "needs keys of one field, but key.parts names several"),
    # Of a worker that only screens: a list judges each event by itself, and no event is a duplicate.
    ([*_SCREENS, *_MIDDLE], "source.repartition.topic: means nothing with filter.kind: none"),
    (
        [*_SCREENS, "sink.duplicates_topic=again"],
        "sink.duplicates_topic: means nothing with filter.kind: none",
    ),
    *(
        (
            [*_SCREENS, f"filter.{leaf}={value}"],
            f"filter.{leaf} = '{value}': means nothing with filter.kind: none",
        )
        for leaf, value in {
            "capacity": "5",
            "error_rate": "0.1",
            "retention": "7d",
            "on_full": "warn",
        }.items()
    ),
    (["filter.kind=window", "filter.refresh=true"], "does not work with exactly_once"),
    # To allow what does not happen: then somebody believes in a danger, or a protection, that is not there.
    (
        ["kafka.allow_plaintext=true"],
        "means nothing with kafka.security_protocol: PLAINTEXT; delete it",
    ),
    (
        [*_AVRO, "kafka.schema_registry.allow_plaintext=true"],
        "means nothing with an address of https; delete it",
    ),
]


FITTING = [
    ["key.field=/a~0b/~1"],
    ["key.field='~'"],
    ["key.from=header", "key.field=/a~b"],
    ["key.from=key", "key.field=null"],
    ["key.field=[id, /user/id]"],
    _PARTS,
    [*_PARTS, "key.from=json", "key.normalize=trim", "key.format=json_schema"],
    [*_PARTS, *_AVRO],
    [*_NO_FIELD, "key.parts=[{header: /a~b}, {header: [x, y]}]"],
    ["filter.capacity=348G"],
    ["filter.capacity=363G", "filter.on_full=stop"],
    ["filter.kind=cuckoo", "filter.error_rate=1e-15"],
    ["filter.kind=window", "filter.retention=30ms"],
    ["key.hash=siphash"],
    ["filter.hash=siphash"],
    ["filter.kind=counting", "filter.probe=double"],
    _MIDDLE,
    [*_MIDDLE, "filter.kind=window"],
    [*_MIDDLE, "key.from=key", "key.field=null"],
    [*_MIDDLE, "delivery.guarantee=at_least_once"],
    [*_MIDDLE, "source.start=latest", "source.on_growth=accept"],
    [*_MIDDLE, f"kafka.group_id={'g' * 32_755}"],
    [*_LISTED, "key.field=[id]"],
    [*_LISTED, *_NO_FIELD, "key.parts=[{field: [id, old]}]"],
]


class TestContradictions:
    """Leaves that do not fit together are refused, on whichever of them is at fault."""

    def test_a_contradiction_is_refused(self, file: Path) -> None:
        """One contradiction gives one line with its remedy."""

        def check(row: tuple[Sequence[str], str]) -> None:
            overrides, expected = row
            (line,) = problems(file, *(text.replace("LIST", str(file)) for text in overrides))
            assert expected in line

        every(CONTRADICTIONS, check)

    def test_what_fits_is_taken(self, file: Path) -> None:
        """Pointers with right escapes, headers of any name and keys without a field are fine."""

        def check(overrides: Sequence[str]) -> None:
            given = [text.replace("LIST", str(file)) for text in overrides]
            assert read(file, *given).source.topic == "events"

        every(FITTING, check)

    def test_malformed_events_go_where_the_topics_allow(self, file: Path) -> None:
        """Not set, `on_malformed` is dead_letter with that topic, else pass; and that is shown."""
        assert read(file).key.on_malformed == "pass"
        assert "  on_malformed: pass  # default\n" in show(read(file))
        with_topic = read(file, "sink.dead_letter_topic=dead")
        assert with_topic.key.on_malformed == "dead_letter"
        kept = read(file, "sink.dead_letter_topic=dead", "key.on_malformed=drop")
        assert kept.key.on_malformed == "drop"
        resolved = [each.sink.on_rejected for each in (read(file), with_topic, kept)]
        assert resolved == ["stop", "dead_letter", "dead_letter"]
