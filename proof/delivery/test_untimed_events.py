"""Claims about events without a timestamp in a window by time: their verdicts, and that a fold repeats a run.

The model is exact, and written from the rules of `filters/window/clock.py`, without looking at its code.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup import filters
from streamdedup.delivery.shard import Shard
from streamdedup.events import NO_TIMESTAMP, Column, Verdict
from streamdedup.filters.window.clock import NEVER, UNDATED
from streamdedup.keys.extract import Keys
from tests.delivery.deciding import decided, folded

PASS, DUPLICATE, BLOCKED = Verdict.PASS, Verdict.DUPLICATE, Verdict.BLOCKED
RETENTION, GENERATIONS, SLOT = 700, 8, 100
NAMES = [b"%d" % number for number in range(12)]

Event = tuple[bytes, int]
times = st.one_of(
    st.just(NO_TIMESTAMP), st.just(NO_TIMESTAMP), st.integers(0, 400), st.integers(0, 4000)
)
events = st.lists(st.tuples(st.sampled_from(NAMES), times), max_size=12)
programs = st.lists(
    st.tuples(events, st.sampled_from(["wait", "admit", "seal", "committed", "aborted", "save"])),
    max_size=12,
)
kinds = st.sampled_from(
    [
        {"capacity": 500},
        {"capacity": 500, "max_jump": 3 * SLOT},
        {"on_full": "grow", "capacity": 3},
    ]
)


def shard_of(options: dict[str, Any], late: str = "pass") -> Shard:
    """A shard over an empty window."""
    made = filters.build(
        {
            "kind": "window",
            "error_rate": 1e-9,
            "retention": RETENTION,
            "generations": GENERATIONS,
            "late": late,
            **options,
        }
    )
    return Shard(0, made, stop_when_full=True)


def columns(stream: Sequence[Event]) -> tuple[Column, Any]:
    """Keys and times."""
    at = np.array([time for _, time in stream], dtype=np.int64)
    return Column.of([key for key, _ in stream]), at


def window(shard: Shard) -> Any:
    """Its filter."""
    return shard.filter


def decide(shard: Shard, stream: Sequence[Event]) -> list[Verdict]:
    """The verdicts, after what the worker does before it decides."""
    while shard.grows_within(len(stream)):
        shard.grow()
    keys, at = columns(stream)
    return [Verdict(v) for v in decided(shard, Keys(keys, {}, (), ()), at).verdicts]


def ended(steps: Any) -> None:
    """Do all of them."""
    for _ in steps:
        pass


def fold(shard: Shard, stream: Sequence[Event], cuts: Sequence[int] = ()) -> None:
    """Fold a part of the output, in batches that end at `cuts`."""
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in pairwise(bounds):
        while shard.grows_within(end - start):
            shard.grow()
        ended(folded(shard, *columns(stream[start:end]), shard.label + end - start))


def restored(shard: Shard) -> Shard:
    """A shard over the filter that was saved, and loaded elsewhere."""
    parts = [memoryview(bytearray(part)) for part in window(shard).buffers()]
    loaded: Any = filters.from_parts(window(shard).header(), parts, window(shard).hash)
    other = Shard(0, loaded, stop_when_full=True)
    other.label = other.end_label = shard.label
    return other


def state(shard: Shard) -> tuple[Any, list[bytes]]:
    """All that a filter is."""
    return window(shard).header(), [bytes(part) for part in window(shard).buffers()]


def generations(shard: Shard) -> dict[bytes, int]:
    """In which generation the window has which key."""
    found = window(shard).generations_many(window(shard).hash.digests(NAMES)).tolist()
    return {key: one for key, one in zip(NAMES, found, strict=True) if one != NEVER}


@dataclass
class Model:
    """A window, event by event: when each key was last taken, and what untimed events count as."""

    late: str = "pass"
    jump: int = 10**9
    mark: int | None = None
    read: int | None = None  # the greatest time of timed events since a gap, or since ever
    held: dict[bytes, int] = field(default_factory=dict)
    undated: set[bytes] = field(default_factory=set)

    def take(self, key: bytes, at: int, *, known: bool = True) -> Verdict:
        """The verdict on the next event. Without `known`, it is one of the output, which passed before."""
        oldest = -(10**9) if self.mark is None else self.mark // SLOT - GENERATIONS
        timed = at != NO_TIMESTAMP
        if known and (key in self.undated or self.held.get(key, -(10**9)) > self._reach(at)):
            return DUPLICATE
        if not timed and self.read is None:
            self.undated.add(key)
            return PASS
        time = at if timed else self.read
        assert time is not None
        is_late = time // SLOT <= oldest
        if timed and is_late and known and self.late == "drop":
            return BLOCKED
        if timed:
            self._pass_time(time, is_late=is_late)
        if not is_late:
            assert self.mark is not None
            own = min(time // SLOT, self.mark // SLOT)
            self.held[key] = max(own, self.held.get(key, own))
        return PASS

    def _reach(self, at: int) -> int:
        """The newest generation that is forgotten at this time."""
        if self.mark is None:
            return -(10**9)
        return max(self.mark, at) // SLOT - GENERATIONS

    def _pass_time(self, time: int, *, is_late: bool) -> None:
        first = self.read is None
        if not is_late:
            at = time if self.mark is None else min(time, self.mark + self.jump)
            self.mark = at if self.mark is None else max(self.mark, at)
        assert self.mark is not None
        limited = time if self.read is None else max(self.read, min(time, self.read + self.jump))
        self.read = min(self.mark, limited)
        if first:
            for key in self.undated:
                own = min(time // SLOT, self.mark // SLOT)
                self.held[key] = max(own, self.held.get(key, own))
            self.undated.clear()

    def live(self) -> dict[bytes, int]:
        """What the window has, as `generations` says it."""
        oldest = -(10**9) if self.mark is None else self.mark // SLOT - GENERATIONS
        held = {key: at for key, at in self.held.items() if at > oldest}
        return held | dict.fromkeys(self.undated, UNDATED)


def run(
    shard: Shard, program: Sequence[tuple[list[Event], str]], model: Model
) -> tuple[Shard, list[Event]]:
    """Decide events, commit them, and doubt; return the shard and its output."""
    output, sealed, opened = list[Event](), list[list[Event]](), list[Event]()
    before = Model(**vars(model) | {"held": {**model.held}, "undated": {*model.undated}})
    for batch, then in program:
        verdicts = decide(shard, batch)
        assert verdicts == [model.take(*event) for event in batch]
        opened += [event for event, verdict in zip(batch, verdicts, strict=True) if verdict is PASS]
        if then == "seal":
            shard.seal()
            sealed.append(opened)
            opened = []
        if then in ("admit", "save"):
            if not sealed:
                shard.seal()
                sealed, opened = [opened], []
            ended(shard.admit(shard.label + len(sealed[0])))
            output += sealed.pop(0)
        if then in ("committed", "aborted", "save"):
            shard.forget()
            if then == "committed":
                lost = [event for group in [*sealed, opened] for event in group]
                fold(shard, lost, [1, 3])
                output += lost
            sealed, opened = [], []
            model.__dict__.update(
                vars(
                    after(output, Model(before.late, before.jump, before.mark, before.read), before)
                )
            )
        if then == "save":
            saved, shard = state(shard), restored(shard)
            assert state(shard) == saved
    shard.forget()
    return shard, output


def after(output: Sequence[Event], model: Model, begun: Model) -> Model:
    """The model after a part of the output, from the state `begun` on."""
    model.held, model.undated = {**begun.held}, {*begun.undated}
    for event in output:
        model.take(*event, known=False)
    return model


@settings(deadline=None, max_examples=200)
@given(kinds, st.sampled_from(["pass", "drop"]), programs, st.lists(st.integers(0, 40), max_size=6))
@example(  # a key that is undated in the filter, and waits in a later generation
    {"capacity": 500},
    "pass",
    [([(b"0", -1)], "admit"), ([(b"1", 0), (b"0", 800), (b"0", -1)], "wait")],
    [],
)
def test_a_fold_is_the_run(
    kind: dict[str, Any], late: str, program: list[tuple[list[Event], str]], cuts: list[int]
) -> None:
    """Whatever batches, doubts and snapshots: verdicts are the model's, and the fold is the filter bit for bit."""
    model = Model(late, kind.get("max_jump", 10**9))
    live, output = run(shard_of(kind, late), program, model)
    folded = shard_of(kind, late)
    fold(folded, output, cuts)
    assert state(folded) == state(live)
    expected = after(output, Model(late, model.jump), Model())
    assert generations(live) == expected.live()
    assert (live.watermark, window(live).marks.untimed) == (expected.mark, expected.read)
    assert len(live.filter) == len(expected.live())


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from([{"capacity": 500}, {"on_full": "grow", "capacity": 3}]),
    st.sampled_from(["pass", "drop"]),
    st.tuples(programs, programs),
    st.integers(0, 40),
    st.lists(st.integers(0, 40), max_size=6),
)
def test_after_a_gap_folds_and_runs_agree(
    kind: dict[str, Any],
    late: str,
    both: tuple[list[tuple[list[Event], str]], list[tuple[list[Event], str]]],
    trimmed: int,
    cuts: list[int],
) -> None:
    """A trimmed output, folded with the watermark of the note; a run from there on; and a fold of all that is left."""
    program, further = both
    whole, output = run(shard_of(kind, late), program, Model(late))
    left = output[trimmed:]
    shard = shard_of(kind, late)
    ended(shard.start_at(whole.watermark))
    fold(shard, left, cuts)
    model = after(left, Model(late, mark=whole.watermark), Model())
    assert generations(shard) == model.live()
    shard, more = run(shard, further, model)
    again = shard_of(kind, late)
    ended(again.start_at(shard.watermark))
    fold(again, [*left, *more], cuts[::2])
    assert generations(again) == generations(shard)
    assert window(again).marks == window(shard).marks


def test_a_window_in_which_nothing_has_a_time_is_an_ordinary_filter() -> None:
    """It finds all keys, never forgets one, counts them, and is full at its capacity; then nothing passes unnoticed."""
    shard, stream = shard_of({"capacity": 900}), [(b"%d" % n, -1) for n in range(1000)]
    assert decide(shard, stream) == [PASS] * 900
    assert shard.full
    ended(shard.admit(1))
    assert (len(shard.filter), shard.watermark, shard.full) == (900, None, True)
    assert decide(shard, stream[:900]) == [DUPLICATE] * 900


def test_keys_without_a_time_move_in_every_place_of_the_table() -> None:
    """In cells, stages and the stash; far more than one call of a kernel takes; while others have left the window."""
    for kind in ({"capacity": 60_000}, {"on_full": "grow", "capacity": 900}):
        shard = shard_of(kind)
        old = [(b"old %d" % n, n // 100) for n in range(10_000)]
        fold(shard, old)
        ended(shard.start_at(600))  # nobody knows what is missing
        untimed = [(b"%d" % n, -1) for n in range(20_000)]
        fold(shard, untimed, [1, 9000])
        assert (len(shard.filter), window(shard).undated) == (30_000, 20_000)
        fold(shard, [(b"first", 300)])
        assert (len(shard.filter), window(shard).undated) == (30_001, 0)
        digests = window(shard).hash.digests([key for key, _ in untimed])
        assert (window(shard).generations_many(digests) == 3).all()
        assert decide(shard, old) == [DUPLICATE] * 10_000
        fold(shard, [(b"later", 300 + GENERATIONS * SLOT)])
        assert len(shard.filter) == 1
        assert (window(shard).generations_many(digests) == NEVER).all()
