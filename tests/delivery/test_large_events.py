"""Claims about events that are larger than a topic takes, before compression: the loop does not wait for them."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamdedup.events import Verdict
from streamdedup.kafka.client.open_batches import loop_bytes_max
from streamdedup.kafka.records import encoding
from streamdedup.kafka.records.codecs import CODECS, NONE, compress
from tests.delivery.bombs import Way, body, record_batch, settings_of

BYTES_MAX = 10_000
BESIDES_BYTES = 100  # an event's own, beside its noise


@pytest.fixture
def on_loop(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each call that compresses an event is made by the loop's thread."""
    calls = list[bool]()

    def noted(*arguments: Any) -> Any:
        calls.append(threading.current_thread() is threading.main_thread())
        return compress(*arguments)

    monkeypatch.setattr(encoding, "compress", noted)
    return calls


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@pytest.mark.parametrize("quick", [True, False], ids=["few", "many"])
async def test_what_takes_long_to_compress_is_compressed_in_a_thread(
    compression: str, quick: bool, on_loop: list[bool], tmp_path: Path
) -> None:
    """To see whether the output takes an event, and the other topic its letter; for few bytes, a thread costs more."""
    noise = np.random.default_rng(1).bytes(2 * BYTES_MAX).hex().encode()
    most = loop_bytes_max(CODECS[compression]) // (len(noise) + BESIDES_BYTES)
    count = most if quick else most + 2
    large = [body(b'{"id":%d,"noise":"%b"}' % (row, noise)) for row in range(count)]
    way = Way(settings_of(tmp_path, sink={"compression": compression}), bytes_max=BYTES_MAX)
    await way.take(record_batch(0, [*large, body(b'{"id":"small"}')], NONE))
    verdicts = [verdict for part in way.parts for verdict in part.verdicts.tolist()]
    assert verdicts == [Verdict.REJECTED] * count + [Verdict.PASS]
    assert set(on_loop) == {quick}
