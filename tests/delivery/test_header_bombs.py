"""Claims about an event with more headers than anybody needs: nobody reads them, it is rejected, and others pass."""

import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from streamdedup.errors import DeliveryError
from streamdedup.events import Headers, Verdict
from streamdedup.kafka.records import headers as headers_module
from streamdedup.kafka.records.codecs import NONE, ZSTD
from streamdedup.kafka.records.wire import read_headers
from tests.delivery.bombs import EMPTY, Way, body, bomb, record_batch, settings_of
from tests.kafka.test_columns import fetched, waited
from tests.kafka.test_headers import written

HEADERS_MAX = 1_000
WITHIN = body(b'{"id":"a"}', EMPTY * HEADERS_MAX, HEADERS_MAX)
ORIGINS: list[dict[str, Any]] = [
    {"from": "json", "field": "id"},
    {"from": "header", "field": "id"},
    {"from": "value"},
]


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many headers Python made objects of, each time."""
    made = []

    def counted(*where: Any) -> Headers:
        found = read_headers(*where)
        made.append(len(found))
        return found

    monkeypatch.setattr(headers_module, "read_headers", counted)
    return made


@pytest.mark.parametrize("key", ORIGINS, ids=lambda key: key["from"])
@pytest.mark.parametrize("headers", [300_000, 3_000_000])
async def test_of_a_bomb_no_header_is_read(
    key: dict[str, Any], headers: int, objects: list[int], tmp_path: Path
) -> None:
    """From its few kB to its letter no header becomes an object, and memory stays near what was decompressed."""
    data = record_batch(0, [bomb(headers)], ZSTD) + record_batch(1, [WITHIN], ZSTD)
    assert len(data) < 4_000
    way = Way(settings_of(tmp_path, key=key))
    tracemalloc.start()
    try:
        await way.take(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert objects == []
    assert peak_bytes < 64 << 20
    verdicts = [verdict for part in way.parts for verdict in part.verdicts.tolist()]
    after = Verdict.MALFORMED if key["from"] == "header" else Verdict.PASS
    assert verdicts == [Verdict.REJECTED, after]


async def test_its_letter_goes_without_its_headers_and_says_so(tmp_path: Path) -> None:
    """Key and value are there, and where the event stands, so that nothing else is lost."""
    way = Way(settings_of(tmp_path))
    await way.take(record_batch(7, [bomb(300_000)], ZSTD))
    [letter] = way.sent.of("letters")
    assert (letter.key, letter.value) == (None, b'{"id":"bomb"}')
    assert dict(letter.headers) == {
        "streamdedup.topic": b"topic",
        "streamdedup.partition": b"3",
        "streamdedup.reason": b"above source.headers_max",
        "streamdedup.offset": b"7",
        "streamdedup.timestamp": b"1790000000000",
        "streamdedup.cut": b"headers",
    }
    assert way.sent.of("out") == []


async def test_without_a_topic_for_dead_letters_the_partition_stops_and_says_why(
    tmp_path: Path,
) -> None:
    """As for any rejected event; the message names the limit, which the operator may raise."""
    way = Way(settings_of(tmp_path, sink={"dead_letter_topic": None}))
    with pytest.raises(DeliveryError, match=r"topic/3 offset 0 is above source.headers_max"):
        await way.take(record_batch(0, [bomb(300_000)], ZSTD))


async def test_a_limit_is_the_operators(tmp_path: Path) -> None:
    """Raised, the event passes with all its headers, and still no header is read by Python."""
    way = Way(settings_of(tmp_path, source={"headers_max": 300_000}))
    await way.take(record_batch(0, [bomb(300_000)], ZSTD))
    [passed] = way.sent.of("out")
    assert len(passed.headers) == 300_000


@pytest.mark.parametrize("field", ["id", "i\ufffd"])
async def test_large_batches_of_headers_are_read_in_a_thread(
    field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key in a header, and the mark, of events within their limits but large together."""
    threads = set()
    located = headers_module.RawHeaders.located

    def noted(self: Any, name: str) -> Any:
        threads.add((name, threading.get_ident() == threading.main_thread().ident))
        return located(self, name)

    monkeypatch.setattr(headers_module.RawHeaders, "located", noted)
    key = {"from": "header", "field": field}
    way = Way(
        settings_of(
            tmp_path, key=key, source={"headers_max": 1_000_000, "headers_bytes_max": 1 << 22}
        )
    )
    many = EMPTY * 999_999 + written([(field.encode(), bytes(1 << 20))])[1:]
    await way.take(record_batch(0, [body(b"v", many, 1_000_000)], NONE))
    assert threads == {(field, False), ("streamdedup.verdict", False)}


@pytest.mark.parametrize("headers", [300_000, 1_500_000])
async def test_a_fold_knows_what_was_emitted_with_any_number_of_headers(
    headers: int, objects: list[int], tmp_path: Path
) -> None:
    """The limit is one of the input: the key in a header of an event of the output is known, and is a duplicate."""
    named = written([(b"id", b"k")])[1:]
    way = Way(settings_of(tmp_path, key={"from": "header", "field": "id"}))
    emitted = record_batch(0, [body(b"v", EMPTY * headers + named, headers + 1)], ZSTD)
    [batch] = await waited(fetched(emitted))
    await way.fold(batch)
    await way.take(record_batch(0, [body(b"v", named, 1), body(b"v")], NONE))
    [part] = way.parts
    assert part.verdicts.tolist() == [Verdict.DUPLICATE, Verdict.MALFORMED]
    assert objects == []
