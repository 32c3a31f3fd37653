"""What is committed beside offsets and written to the control topic, in every form, and what is read in old forms."""

from dataclasses import asdict, replace
from typing import Any

from streamdedup.errors import MalformedError
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.options import RepartitionOptions
from streamdedup.keys.extract import Extractor
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.options import URL_SWITCHES, EmailRules, UrlRules
from streamdedup.keys.parts import Part
from streamdedup.lists.control import Op, control_key, message, read_change
from streamdedup.settings.meaning import Meaning

_IDS: dict[str, Any] = {"cluster_id": "cluster", "input_id": "input", "output_id": "output"}
NOTES = {
    "least": Note(cluster_id=None, input_id=None, output_id=None, label=0),
    "without a watermark": Note(**_IDS, label=5),
    "with a watermark": Note(**_IDS, label=5, watermark=1_700_000_000_000),
    "with partitions": Note(**_IDS, label=5, watermark=None, partitions=8, born=4),
    "atomic": Note(**_IDS, label=5, watermark=-1, partitions=8, born=8, atomic=True),
    "forgotten": Note(
        **_IDS, label=5, watermark=0, partitions=8, born=8, atomic=True, floor=0, since=0
    ),
    "forgotten, without ids": Note(
        cluster_id=None, input_id="input", output_id=None, label=2**62, floor=7, since=9
    ),
    "with a meaning": Note(**_IDS, label=5, partitions=8, born=8, atomic=True, meaning=0xFFFF_FFFF),
    "with placed events": Note(**_IDS, label=5, partitions=8, atomic=True, placed=8),
    "other scripts": Note(cluster_id="日本", input_id='a"b', output_id="", label=1),
}
OLD_NOTES = (
    '{"streamdedup":1,"cluster_id":"c","input_id":"i","output_id":"o","label":7}',
    '{"streamdedup":1,"cluster_id":null,"input_id":null,"output_id":null,"label":7,"watermark":5}',
    '{"streamdedup":1,"cluster_id":"c","input_id":"i","output_id":"o","label":7,"watermark":null}',
    '{"streamdedup":1,"cluster_id":"c","input_id":"i","output_id":"o","label":7,"partitions":3}',
    '{"streamdedup":1,"cluster_id":"c","input_id":"i","output_id":"o","label":7,"later":[1]}',
    '{"label":7,"output_id":"o","input_id":"i","cluster_id":"c","streamdedup":1,"atomic":true}',
    '{"streamdedup":1,"cluster_id":"c","input_id":"i","output_id":"o","label":7,"atomic":1}',
    '{"streamdedup":1,"cluster_id":"c","input_id":"i","output_id":"o","label":7,"floor":"3"}',
    '{"streamdedup":1,"cluster_id":"c","input_id":"i","output_id":"o","label":7,"meaning":"b140e3ff"}',
    '{"streamdedup":2,"cluster_id":"c","input_id":"i","output_id":"o","label":7}',
    '{"streamdedup":1,"cluster_id":"c","input_id":"i","label":7}',
    '{"streamdedup":1,"cluster_id":"c","input_id":"i","output_id":"o"}',
    *("", "{}", "null", "[]", "a tool's own words", '{"streamdedup":1'),
)


def notes() -> Any:
    """The very text of notes, and what every form of them is read as; nothing if it is none of ours."""
    texts = {name: note.encode() for name, note in NOTES.items()}
    read = [*OLD_NOTES, *texts.values()]
    return {"written": texts, "read": {text: _read(text) for text in read}}


ALL_RULES = UrlRules.of(["sid", "phpsessid"], **dict.fromkeys(URL_SWITCHES, True))


def _read(text: str) -> dict[str, Any] | None:
    note = Note.decode(text)
    return None if note is None else asdict(note)


def meanings() -> Any:
    """Names and checks of meanings, and what they stand for: another name ends every group's rolling upgrades."""
    plain = Extractor("json", ("id",))
    emails = {
        f"email, {preset}": replace(plain, normalizer=normalizer("email", EmailRules.of(preset)))
        for preset in ("provider", "strict")
    }
    extractors = {
        "plain": plain,
        "several fields": Extractor("json", ("/user/id", "名"), "judge"),
        "the record's key": Extractor("key", (), "drop"),
        "the value": Extractor("value"),
        "a header": Extractor("header", ("id",)),
        "parts": Extractor.of_parts((Part("header", ("t",)), Part("json", ("a", "b")))),
        "trim": replace(plain, normalizer=normalizer("trim")),
        "lowercase": replace(plain, normalizer=normalizer("lowercase")),
        **emails,
        "url": replace(plain, normalizer=normalizer("url")),
        "url, all rules": replace(plain, normalizer=normalizer("url", ALL_RULES)),
        "Avro": replace(plain, format="avro"),
        "Protobuf": replace(plain, format="protobuf"),
        "JSON Schema": replace(plain, format="json_schema"),
    }
    made = {name: Meaning(each, "in", "out", True) for name, each in extractors.items()}
    made["without a filter"] = Meaning(plain, "in", "out", False)
    middle = RepartitionOptions(topic="middle", partitions=12)
    made["repartition"] = Meaning(plain, "in", "middle", False, middle)
    made["deduplicate"] = Meaning(plain, "middle", "out", True, middle)
    return {name: [each.name, each.check, each.parts] for name, each in made.items()}


ENTRIES = (
    *("key", " Key ", "a.b+tag@GMAIL.com", "@Example.com", " .Example.com", "@googlemail.com"),
    *("x@bücher.example", "no address", "", ".gmail.com", "日本", "HTTP://A.b#c"),
)
VALUES = (
    *(None, b'{"op":"add"}', b'{"op":"remove","reason":"why"}', b'{"reason":"r","op":"add","x":1}'),
    *(b'{"op":"undo"}', b'{"op":"ADD"}', b'{"op":1}', b"{}", b"[]", b"add", b"", b"\xff", b"null"),
)


def control() -> Any:
    """Keys and values of the control topic's messages, and what is read in them; without the words of a refusal."""
    ops: list[tuple[Op, str]] = [("add", ""), ("add", 'why "so"'), ("remove", ""), ("undo", "")]
    rules = {
        "none": normalizer("none", EmailRules.of("provider")),
        "lowercase": normalizer("lowercase", EmailRules.of("provider")),
        "email": normalizer("email", EmailRules.of("provider")),
        "email, strict": normalizer("email", EmailRules.of("strict")),
        "url": normalizer("url"),
    }
    return {
        "values": {f"{op} {reason}".strip(): _text(message(op, reason)) for op, reason in ops},
        "keys": {
            name: {entry: _or_malformed(control_key, entry.encode(), normal) for entry in ENTRIES}
            for name, normal in rules.items()
        },
        "read": {
            repr(value): _or_malformed(_change, b"key", value, rules["none"]) for value in VALUES
        },
        "read of keys": {
            name: {
                entry: _or_malformed(_change, entry.encode(), VALUES[1], normal)
                for entry in (*ENTRIES, "@example.com", ".example.com", "@gmail.com")
            }
            for name, normal in rules.items()
        },
    }


def _change(entry: bytes, value: bytes | None, normal: Any) -> list[Any]:
    change = read_change(entry, value, normal)
    return [[_text(key) for key in change.keys], int(change.change)]


def _or_malformed(read: Any, *arguments: Any) -> Any:
    try:
        made = read(*arguments)
    except MalformedError:
        return "malformed"
    return _text(made) if isinstance(made, bytes) else made


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
