"""Claims about bytes that nobody meant: a parser reads them, or refuses them by an error that it documents.

A fixed number of inputs of one seed; `python -m proof fuzz` plays others, for minutes, and bounds time and memory.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from proof.fuzz import __main__ as command
from proof.fuzz import corpus, play
from proof.fuzz.mutations import SIZE_BYTES_MAX, mutated
from proof.fuzz.play import Player, play_apart
from proof.fuzz.sealing import FileParts
from proof.fuzz.targets import TARGETS, Target
from proof.golden.lists import letters_then
from streamdedup.errors import MalformedError

SEED = 1
FILES = ("list", "exact-store", "snapshot")
# Run again with the check of bounds: strangers write these programs.
RUN = ("avro-schema", "protobuf-schema")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.bounds if name in RUN else ()) for name in TARGETS],
)
def test_a_parser_reads_an_input_or_refuses_it_by_name(name: str) -> None:
    """Of the inputs that are played, some are read and, if the parser can refuse, some are refused."""
    player, count = Player(name, SEED), TARGETS[name].inputs
    for number in range(count):
        try:
            player.play(number)
        except Exception as error:
            error.add_note(f"python -m proof fuzz {name} --seed {SEED} --play {number}")
            raise
    assert player.refused < count
    assert bool(player.refused) == bool(TARGETS[name].refusals)


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_read(name: str) -> None:
    """What our own writers made is not refused."""
    player = Player(name, SEED)
    with letters_then():
        for data in corpus.made(name):
            player.run(data)
    assert player.refused == 0


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_taken_apart_is_assembled_again(name: str) -> None:
    """So the checksums of a changed file are right, as the product computes them."""
    for data in corpus.read(name):
        assert FileParts.of(data).assembled() == data


def test_an_input_is_known_by_target_seed_and_number() -> None:
    """It can be played again; another seed or number has another one."""
    for name in TARGETS:
        one, same, other = Player(name, 1), Player(name, 1), Player(name, 2)
        assert [one.input(number) for number in range(20)] == [same.input(n) for n in range(20)]
        assert [one.input(number) for number in range(20)] != [other.input(n) for n in range(20)]


def test_no_input_is_larger_than_the_limit() -> None:
    """However often its parts are doubled."""
    random, data = Random(SEED), b"x" * SIZE_BYTES_MAX
    assert all(len(mutated(random, data, [data])) <= SIZE_BYTES_MAX for _ in range(200))


def _refuse(_: bytes) -> None:
    raise MalformedError("refused")


def _fail(_: bytes) -> None:
    raise ZeroDivisionError("by a parser")


@pytest.mark.parametrize(("run", "faulty"), [(_refuse, False), (_fail, True)])
def test_an_error_that_is_not_documented_is_a_fault(
    run: Callable[[bytes], None], faulty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is raised as it is; one that is documented is counted."""
    monkeypatch.setitem(TARGETS, "note", Target(run, (MalformedError,), 1))
    player = Player("note", SEED)
    if faulty:
        with pytest.raises(ZeroDivisionError):
            player.play(0)
    else:
        player.play(0)
        assert player.refused == 1


def test_a_process_of_its_own_plays_until_the_time_is_over() -> None:
    """It reports how many inputs it played, and no fault."""
    played, fault = play_apart("note", SEED, 0.2)
    assert fault is None
    assert played > 0


@pytest.mark.parametrize(("fault", "status"), [(None, 0), ("ZeroDivisionError", 1)])
def test_the_command_names_a_fault_and_goes_on(
    fault: str | None, status: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The next target is played all the same; the status shows that there was one."""
    seconds = dict[str, float]()

    def stub(target: str, seed: int, given_s: float) -> tuple[int, play.Fault | None]:
        seconds[target] = given_s
        return 5, play.Fault(target, seed, 4, fault) if fault and target == "json" else None

    monkeypatch.setattr(command, "play_apart", stub)
    assert command.main(["--minutes", "1", "--seed", "7", "json", "note"]) == status
    assert seconds == {"json": 30.0, "note": 30.0}
    told = capsys.readouterr().out
    assert ("input 4, seed 7: ZeroDivisionError" in told) == bool(fault)
    with pytest.raises(SystemExit, match="2"):
        command.main(["unknown"])
