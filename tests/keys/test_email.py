"""Claims about e-mail addresses: one key for all ways to write one, and the kernel never says otherwise."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from typing import Any

import email_validator
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup.errors import MalformedError
from streamdedup.events import Column
from streamdedup.keys.normalizers.address_limits import LABELS_MAX
from streamdedup.keys.normalizers.domains import candidates
from streamdedup.keys.normalizers.email import LONG_LOCAL, TOO_LONG, EmailNormalizer
from streamdedup.keys.normalizers.email_column import plain
from streamdedup.keys.options import EmailRules
from tests.keys.reading import agrees
from tests.rows import every, table

PROVIDER, STRICT = EmailRules.of("provider"), EmailRules.of("strict")
RULES = [
    EmailRules(tags, dots, aliases)
    for tags in (True, False)
    for dots in (True, False)
    for aliases in (True, False)
]
DOMAINS = [
    *("gmail.com", "GoogleMail.com", "yahoo.com", "me.com", "ya.ru", "outlook.com", "example.com"),
    "a.b",
    "x-1.example.org",
    "test",
    "a.test",
    "mail.local",
    "xn--bcher-kva.example",
    "bücher.example",
    "a--b.com",
    "ab--c.com",
    "-a.com",
    "a-.com",
    "a..com",
    "a.c0",
    "1.2.3.4",
    "",
    "com.",
    ".com",
    "a_b.com",
    *("l" * 63 + ".com", "l" * 64 + ".com", ".".join(["l" * 62] * 4) + ".de"),
    *("user.fastmail.com", "a.user.fastmail.com", "USER.Sent.com", "xn--53h1310o.ws", "😀.ws"),
    *("xn--9c9b.com", "a.xn--zzzzzzzz.example", "i❤\ufe0f.ws", "xn--" + "a" * 60 + ".com"),
]

locals_ = st.text(st.sampled_from("abAB01.+-_!'\"( @é"), max_size=10) | st.text(max_size=6)
domains = st.sampled_from(DOMAINS) | st.text(st.sampled_from("aBc1.-_é @x"), max_size=12)
addresses = st.builds("{}@{}".format, locals_, domains) | st.text(max_size=20)
padded = st.builds(
    "{}{}{}".format, st.sampled_from(["", " ", "\t\n"]), addresses, st.sampled_from(["", " "])
)


@table(
    [
        ("Anna@Example.COM", "anna@example.com"),
        (" anna@example.com\r", "anna@example.com"),
        ("Anna.Berg+shop@GoogleMail.com", "annaberg@gmail.com"),
        ("a.n.n.a.+x@gmail.com", "anna@gmail.com"),
        ("anna+a+b@outlook.com", "anna@outlook.com"),
        ("anna.berg+x@outlook.com", "anna.berg@outlook.com"),
        ("anna-shop@yahoo.com", "anna@yahoo.com"),
        ("anna+shop@yahoo.com", "anna+shop@yahoo.com"),
        ("anna-berg@gmail.com", "anna-berg@gmail.com"),
        ("anna@me.com", "anna@icloud.com"),
        ("Anna@ya.ru", "anna@yandex.ru"),
        ("anna+x@company.example", "anna+x@company.example"),
        ("+x@gmail.com", "+x@gmail.com"),
        ("anna.+x@outlook.com", "anna.+x@outlook.com"),
        ("anna@Bücher.example", "anna@xn--bcher-kva.example"),
        ("anna@xn--bcher-kva.example", "anna@xn--bcher-kva.example"),
        ("ÄNNA@example.com", "änna@example.com"),
        ("a\u0308nna@example.com", "änna@example.com"),
        ("postmaster@example.com", "postmaster@example.com"),
        ("A+b@protonmail.ch", "a@protonmail.ch"),
        ("shop@Anna.Fastmail.com", "anna@fastmail.com"),
        ("a+b@anna.sent.com", "anna@sent.com"),
        ("shop@x.anna.fastmail.com", "shop@x.anna.fastmail.com"),
        ("shop@anna.gmail.com", "shop@anna.gmail.com"),
        ("a@🐸☕.ws", "a@xn--53h1310o.ws"),
        ("a@xn--zzzzzzzz.com", "a@xn--zzzzzzzz.com"),  # no Punycode
        ("ä" * 32 + "@example.com", "ä" * 32 + "@example.com"),
    ]
)
def test_an_address_is_known_as_its_provider_knows_it(written: str, key: str) -> None:
    """Case, tags, dots, aliases, letters of any alphabet: each as the table of providers and IDNA have it."""
    is_known_as(written, key)


def is_known_as(written: str, key: str) -> None:
    """An address has this key, alone and in a column."""
    email = EmailNormalizer(PROVIDER)
    assert email.of_key(written.encode()) == key.encode()
    assert list(email.of_column(Column.of([written.encode()]))[0]) == [key.encode()]


@table(
    [
        (STRICT, "a.b+c@googlemail.com"),
        (EmailRules.of("strict", tags=True), "a.b@googlemail.com"),
        (EmailRules.of("strict", dots=True), "ab+c@googlemail.com"),
        (EmailRules.of("strict", aliases=True), "a.b+c@gmail.com"),
        (EmailRules.of("provider", tags=False), "ab+c@gmail.com"),
        (EmailRules.of("provider", dots=False), "a.b@gmail.com"),
        (EmailRules.of("provider", aliases=False), "ab@googlemail.com"),
        (PROVIDER, "ab@gmail.com"),
    ]
)
def test_each_rule_is_a_switch(rules: EmailRules, key: str) -> None:
    """A preset sets all three, and each can be set by itself; the exact reader and the kernel both follow."""
    assert EmailNormalizer(rules).of_key(b"A.b+c@GoogleMail.com") == key.encode()
    assert list(plain(Column.of([b"A.b+c@GoogleMail.com"]), rules)) == [key.encode()]


@given(rules=st.sampled_from(RULES), texts=st.lists(padded, max_size=8))
@settings(deadline=None)  # compiled within
def test_the_kernel_never_says_otherwise(rules: EmailRules, texts: list[str]) -> None:
    """What it knows is what the exact reader makes of the address; what that refuses it does not know."""
    agrees(EmailNormalizer(rules), lambda cells: plain(cells, rules), texts)


@given(text=padded)
@settings(deadline=None)
def test_a_key_is_its_own_key(text: str) -> None:
    """So a list may be built of addresses as they are, or as they were normalized before."""
    email = EmailNormalizer(PROVIDER)
    with suppress(MalformedError):
        key = email.of_key(text.encode("utf-8", "replace"))
        assert email.of_key(key) == key


@table(["example.com", "mail.example.co.uk", "gmail.com", "x-1.example.org", "l" * 63 + ".com"])
def test_ordinary_addresses_go_by_the_kernel(domain: str) -> None:
    """Python is not asked for what nearly all addresses look like."""
    given = [
        f"{local}@{domain}".encode()
        for local in ("anna", "Anna.Berg", "a_b-c+d", "o'neil", "x" * 64)
    ]
    assert None not in list(plain(Column.of(given), PROVIDER))


@table(
    [
        "Q9Z",
        "Q9Z@",
        "@Q9Z.com",
        "Q9Z@Q9Z",
        "Q9Z@Q9Z.test",
        "Q9Z..x@a.com",
        "Q9Z x@a.com",
        "Q9Z<b@a.com>",
        '"Q9Z x"@a.com',
        "Q9Z@[10.0.0.1]",
        "Q9Z\u2028@a.com",
        "a@Q9Z\u200fx.com",
        "Q9Z\uff20a.com",
        "Q9Z@a.com, b@c.com",
        "(Q9Z)a@b.com",
        '"Q9Z"Q9Z@b.com',
        "Q9Z" * 10_000 + "@a.com",
        "a@Q9Z-.com",
        "Q9Z@1.1",
        "Q9Z@a_b.com",
        "Q9Z@xn--.com",
        "Q9Z@\u0301a.com",
        "Q9Z@😀",
    ]
)
def test_a_reason_holds_nothing_of_the_address(text: str) -> None:
    """It says what is wrong, and that it is an address that was wanted."""
    keys, malformed = EmailNormalizer(PROVIDER).of_column(Column.of([text.encode()]))
    assert list(keys) == [None]
    assert malformed[0].startswith("the key is not an e-mail address: ")
    assert not re.search(r"Q9Z|U\+|\.$", malformed[0])
    assert len(malformed[0]) < 160


@table(
    product(
        ["l" * 65, "ä" * 33, "l" * 60 + "+shop1", "\u0130" * 32], ["gmail.com", "bücher.example"]
    )
)
def test_a_local_part_of_more_than_64_bytes_is_no_address(local: str, domain: str) -> None:
    """RFC 5321, 4.5.3.1.1: by the kernel and by Python, with what is a tag."""
    keys, malformed = EmailNormalizer(PROVIDER).of_column(Column.of([f"{local}@{domain}".encode()]))
    assert list(keys) == [None]
    assert malformed == {0: LONG_LOCAL}


def test_the_identity_tells_the_rules_apart() -> None:
    """Other rules make other keys, so a snapshot or list of them is not taken for one of these."""
    identities = {EmailNormalizer(rules).id for rules in RULES}
    assert len(identities) == len(RULES)
    assert all(identity.startswith("email 1, ") for identity in identities)
    assert "table" not in EmailNormalizer(STRICT).id


@table(
    [
        (b"@Example.com", [b"@example.com"]),
        (b" .example.com ", [b"example.com"]),
        (b"@googlemail.com", [b"@gmail.com"]),
        (b".googlemail.com", [b"googlemail.com", b"@gmail.com"]),
        (b".xn--53h1310o.ws", [b"xn--53h1310o.ws"]),
        ("@💩.la".encode(), [b"@xn--ls8h.la"]),
        (b"@xn--9c9b.com", [b"@xn--9c9b.com"]),
        ("@Bücher.example".encode(), [b"@xn--bcher-kva.example"]),
    ]
)
def test_a_domain_of_a_list(entry: bytes, keys: list[bytes]) -> None:
    """It is held by keys that the addresses of that domain have among their candidates."""
    email = EmailNormalizer(PROVIDER)
    assert email.of_domain_entry(entry).keys == keys
    address = b"a@" + entry.strip()[1:]
    assert set(keys) & {cell for _, cell in _candidates(email.of_key(address))}


@table(
    [
        *(b"@", b".", b"", b"example.com", b"@-a.com", b"@a b.com", b"@a@b.com", b"@localhost"),
        b"@user.fastmail.com",
        b".user.sent.com",
        b"@xn--",
        b"@xn--a_b.com",
        "@💩\u200d💩.la".encode(),
    ]
)
def test_what_is_no_domain_of_a_list(entry: bytes) -> None:
    """It is malformed."""
    with pytest.raises(MalformedError):
        EmailNormalizer(PROVIDER).of_domain_entry(entry)


@given(
    cells=st.lists(
        st.none()
        | st.binary(max_size=4)
        | addresses.map(lambda text: text.encode("utf-8", "replace"))
    )
)
@settings(deadline=None)
@example(cells=[b"a@" + b"b." * 120 + b"com", b"a@b.c"])
def test_the_candidates_of_addresses(cells: list[bytes | None]) -> None:
    """The domain with its @, and it and each of its parents without, row by row; nothing of what has no @."""
    expected = []
    for row, cell in enumerate(cells):
        if cell is not None and b"@" in cell:
            domain = cell[cell.index(b"@") + 1 :]
            starts = [0, *(at + 1 for at, char in enumerate(domain) if char == ord("."))][
                -LABELS_MAX:
            ]
            expected += [(row, b"@" + domain), *((row, domain[start:]) for start in starts)]
    rows, keys = candidates(Column.of(cells))
    assert list(zip(rows.tolist(), keys, strict=True)) == expected


def _candidates(address: bytes) -> list[tuple[int, bytes]]:
    rows, keys = candidates(Column.of([address]))
    return [(row, key or b"") for row, key in zip(rows.tolist(), keys, strict=True)]


def test_one_thread_at_a_time_reads_what_no_kernel_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several that run Python code would together keep the GIL from the event loop."""
    both, met, read = threading.Barrier(2), threading.Event(), email_validator.validate_email

    def noted(*arguments: Any, **options: Any) -> Any:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.5)
            met.set()
        return read(*arguments, **options)

    monkeypatch.setattr(email_validator, "validate_email", noted)
    columns = [Column.of([f"anna{n}@exämple.org".encode()]) for n in range(2)]
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(EmailNormalizer(PROVIDER).of_column, columns))
    assert [list(keys) for keys, _ in found] == [
        [f"anna{n}@xn--exmple-cua.org".encode()] for n in range(2)
    ]
    assert not met.is_set()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that email-validator was asked for."""
    texts, validate = list[str](), email_validator.validate_email

    def noted(text: str, **options: Any) -> Any:
        texts.append(text)
        return validate(text, **options)

    monkeypatch.setattr(email_validator, "validate_email", noted)
    return texts


def test_a_malformed_key_is_read_once_a_batch(read: list[str]) -> None:
    """As an address is: whoever repeats it costs no more."""
    wrong, right = "é@wrong", "é@bücher.example"
    column = Column.of([text.encode() for text in (wrong, right) * 100])
    keys, malformed = EmailNormalizer(PROVIDER).of_column(column)
    assert sorted(read) == sorted([wrong, right])
    assert list(keys)[:2] == [None, "é@xn--bcher-kva.example".encode()]
    assert list(malformed) == list(range(0, 200, 2))
    assert len({*malformed.values()}) == 1


LONG = [
    "e" + "\U0001d160" * 1000 + "@b.com",
    "é" * 125 + "@b.com",
    "a@b" + "\ufe0f" * 83 + ".com",
    "l" * 249 + "@b.com",
    '"' + "a" * 247 + '"@b.com',
]


def test_what_has_too_many_bytes_is_refused_unread(read: list[str]) -> None:
    """The rule set refuses it, too, but after up to 30 ms of work; so it is with an entry of a list."""

    def check(text: str) -> None:
        assert len(text.encode()) > 254
        with pytest.raises(email_validator.EmailNotValidError):
            email_validator.validate_email(text, check_deliverability=False)
        read.clear()
        email = EmailNormalizer(PROVIDER)
        keys, malformed = email.of_column(Column.of([text.encode(), b" " * 300 + text.encode()]))
        assert list(keys) == [None, None]
        assert malformed == {0: TOO_LONG, 1: TOO_LONG}
        with pytest.raises(MalformedError, match=re.escape(TOO_LONG)):
            email.of_domain_entry(b"@" + text.encode())
        assert not read

    every(LONG, check)
