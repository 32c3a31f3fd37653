"""Claims about `lists check --live` and `lists key`: what the lists in force say of a key; over a broker in memory."""

from functools import partial
from pathlib import Path

import pytest

from streamdedup.commands.lists import ask
from streamdedup.keys.options import UrlRules
from streamdedup.lists.control import Op, message
from streamdedup.lists.normalization import Normalizing
from streamdedup.testing import MemoryBroker, connected_to
from tests.deployment import Deployment
from tests.lists.tools import PROVIDER, Commands, Said, built, lists

__all__ = ["lists"]  # a fixture
TOPIC = "control"
BLOCKED = [
    "listed@x.example",
    "exempt@x.example",
    "gone@x.example",
    "@listed.example",
    ".tree.example",
]


class Stage:
    """A list of addresses and domains, one that exempts, a control topic, and the commands."""

    def __init__(self, lists: Commands, patch: pytest.MonkeyPatch, directory: Path) -> None:
        self.broker, self._lists, self.directory = MemoryBroker(), lists, directory
        self.broker.create_topic(TOPIC, 2, cleanup_policy="compact")
        self.deployment = Deployment("memory:1", directory, 1)
        self.config = self.deployment.config
        self.config["key"] = {"from": "value", "normalize": "email"}
        for name, entries in (("block", BLOCKED), ("allow", ["exempt@x.example"])):
            (directory / name).mkdir()
            listed = built(directory / name, entries, normalizing=PROVIDER, exact=name == "block")
            self.config[f"{name}list"] = {"file": str(listed.path)}
        self.config["blocklist"]["control_topic"] = TOPIC
        for name in ("live_verdicts", "key_lines"):
            reached = partial(getattr(ask, name), connect=connected_to(self.broker))
            patch.setattr(ask, name, reached)

    def write(self, op: Op, *entries: str, partition: int = 0) -> None:
        """Append changes."""
        value = message(op, "")
        self.broker.produce(TOPIC, [(partition, entry.encode(), value) for entry in entries])

    def __call__(self, part: str, *arguments: str, stdin: bytes = b"") -> Said:
        """Run `lists PART -c CONFIG`."""
        return self._lists(part, "-c", str(self.deployment.write_config()), *arguments, stdin=stdin)

    def checked(self, *keys: str) -> list[str]:
        """What `lists check --live` says of each key, without the key."""
        said = self("check", "--live", *keys)
        assert said.status == 0, said.errors
        found = [line.rsplit("\t", 1) for line in said.out.decode().splitlines()]
        assert [key for _, key in found] == list(keys)
        return [answer for answer, _ in found]


@pytest.fixture
def stage(lists: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    """With three changes."""
    made = Stage(lists, monkeypatch, tmp_path)
    made.write("add", "added@y.example", "@added.example", "exempt@x.example")
    made.write("remove", "gone@x.example", ".tree.example", partition=1)
    return made


ANSWERS = {
    "Listed@x.example": "blocked\taddress\tfile",
    "a@listed.example": "blocked\tdomain\tfile",
    "added@y.example": "blocked\taddress\tchange",
    "a@added.example": "blocked\tdomain\tchange",
    "exempt@x.example": "pass\tallowlist\tfile",
    "gone@x.example": "pass\tremoved\tchange",
    "a@b.tree.example": "pass\tremoved\tchange",
    "nobody@y.example": "pass\t-\t-",
}


@pytest.mark.parametrize("on_positive", ["drop", "verify"])
def test_the_lists_in_force_answer(stage: Stage, on_positive: str) -> None:
    """The list's file, the changes, which win, and the allow list; whether or not there is an exact store."""
    stage.config["blocklist"]["on_positive"] = on_positive
    assert dict(zip(ANSWERS, stage.checked(*ANSWERS), strict=True)) == ANSWERS
    malformed = stage.checked("nobody")[0]
    assert malformed.startswith("malformed\tthe key is not an e-mail address")
    assert malformed.endswith("\t-")


def test_keys_of_standard_input_are_answered(stage: Stage) -> None:
    """A line each, so that no key is in the list of processes."""
    said = stage("check", "--live", stdin=b"added@y.example\nnobody@y.example\n")
    assert said.out == b"blocked\taddress\tchange\tadded@y.example\npass\t-\t-\tnobody@y.example\n"
    assert stage("check", "--live", "-", stdin=b"added@y.example\n").out == said.out[:39]


def test_an_answer_is_that_of_the_change_that_came_last(stage: Stage) -> None:
    """Once a change is taken back, the file decides again."""
    assert stage.checked("gone@x.example") == ["pass\tremoved\tchange"]
    stage.write("undo", "gone@x.example", partition=1)
    assert stage.checked("gone@x.example") == ["blocked\taddress\tfile"]


def test_without_a_control_topic_no_broker_is_needed(stage: Stage) -> None:
    """The files are all that is in force."""
    del stage.config["blocklist"]["control_topic"]
    stage.config["kafka"]["bootstrap_servers"] = "nowhere.invalid:1"
    assert stage.checked("gone@x.example", "exempt@x.example", "added@y.example") == [
        "blocked\taddress\tfile",
        "pass\tallowlist\tfile",
        "pass\t-\t-",
    ]


def test_a_list_that_workers_refuse_gives_no_answer(stage: Stage) -> None:
    """Those that run have the list before in force, which no command can read; the reason is said."""
    path = Path(stage.config["blocklist"]["file"])
    path.write_bytes(path.read_bytes()[:-1])
    said = stage("check", "--live", "a@x.example")
    assert said.status == 1
    assert f"blocklist.file: cannot use {path}" in said.errors
    assert said.out == b""


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--allow", "x", "a"], "-c takes --allow from the configuration; delete one of the two"),
        (["--exact", "a"], "-c takes --exact from the configuration; delete one of the two"),
        (["FILE", "a"], "--live takes FILE from the configuration; leave it out"),
    ],
)
def test_what_the_configuration_has_is_given_once(
    stage: Stage, arguments: list[str], error: str
) -> None:
    """Else it would not be clear which of the two answers."""
    file = stage.config["blocklist"]["file"]
    said = stage("check", "--live", *[file if one == "FILE" else one for one in arguments])
    assert said.status == 2
    assert error in said.errors


def test_without_a_list_or_without_live_the_error_says_what_to_give(stage: Stage) -> None:
    """A block list, or FILE."""
    said = stage("check")
    assert said.status == 2
    assert "FILE is missing; name the list, or ask what is in force by --live" in said.errors
    del stage.config["blocklist"], stage.config["allowlist"]
    said = stage("check", "--live", "a")
    assert said.status == 2
    assert "blocklist.file is not set" in said.errors


def test_a_key_has_its_normal_form_and_the_entries_that_match_it(stage: Stage) -> None:
    """Each with what has it; without --live by the file alone, and that is said."""
    said = stage("key", "--live", "Added@a.B.Added.example", "a@c.tree.example", "gone@x.example")
    assert said.status == 0
    assert said.out.decode().splitlines() == [
        "normal form\tadded@a.b.added.example\t-",
        "address\tadded@a.b.added.example\t-",
        "domain\t@a.b.added.example\t-",
        "domain\t.a.b.added.example\t-",
        "domain\t.b.added.example\t-",
        "domain\t.added.example\t-",
        "normal form\ta@c.tree.example\t-",
        "address\ta@c.tree.example\t-",
        "domain\t@c.tree.example\t-",
        "domain\t.c.tree.example\t-",
        "domain\t.tree.example\tremoved",
        "normal form\tgone@x.example\t-",
        "address\tgone@x.example\tremoved",
        "domain\t@x.example\t-",
        "domain\t.x.example\t-",
    ]
    said = stage("key", "-", stdin=b"gone@x.example\n.tree.example\nnobody\n")
    assert said.out.decode().splitlines()[:-1] == [
        "normal form\tgone@x.example\t-",
        "address\tgone@x.example\tfile",
        "domain\t@x.example\t-",
        "domain\t.x.example\t-",
        "normal form\t.tree.example\t-",
        "domain\t.tree.example\tfile",
    ]
    assert said.out.decode().splitlines()[-1].startswith("malformed\tthe key is not an e-mail")
    assert "by the file alone; the single changes are asked with --live" in said.errors


@pytest.mark.parametrize("on_positive", ["drop", "verify"])
def test_an_entry_that_matches_is_one_that_blocks(stage: Stage, on_positive: str) -> None:
    """What `key` calls the cause is what `check` decides by."""
    stage.config["blocklist"]["on_positive"] = on_positive
    for key, answer in ANSWERS.items():
        verdict, rule, source = answer.split("\t")
        said = stage("key", "--live", key).out.decode().splitlines()
        rows = [line.split("\t") for line in said][1:]
        if verdict == "blocked":
            assert [rule, source] in [[kind, has] for kind, _, has in rows]
        elif rule == "removed":
            assert rule in [has for _, _, has in rows]


def test_a_url_has_the_entries_of_its_host(stage: Stage) -> None:
    """The host alone, and the hosts around it."""
    directory = stage.directory / "urls"
    directory.mkdir()
    stage.config["key"] = {"from": "value", "normalize": "url"}
    listed = built(directory, [".b.example"], normalizing=Normalizing("url", UrlRules()))
    stage.config["blocklist"]["file"] = str(listed.path)
    del stage.config["allowlist"]
    stage.write("undo", "exempt@x.example", "added@y.example")
    stage.write("add", "@a.b.example")
    said = stage("key", "--live", "HTTP://A.b.example/x")
    assert said.out.decode().splitlines() == [
        "normal form\thttp://a.b.example/x\t-",
        "address\thttp://a.b.example/x\t-",
        "domain\t@a.b.example\tchange",
        "domain\t.a.b.example\t-",
        "domain\t.b.example\tfile",
        "domain\t.example\t-",
    ]
