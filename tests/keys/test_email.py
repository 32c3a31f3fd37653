"""Claims about e-mail addresses: one key for all ways to write one, and the kernel never says otherwise."""

import asyncio
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import email_validator
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup.delivery.turns import keys_of
from streamdedup.errors import MalformedError
from streamdedup.events import Column
from streamdedup.keys.extract import Extractor
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.normalizers.address_limits import LABELS_MAX
from streamdedup.keys.normalizers.domains import candidates
from streamdedup.keys.normalizers.email import LONG_LOCAL, TOO_LONG, EmailNormalizer
from streamdedup.keys.normalizers.email_column import plain
from streamdedup.keys.normalizers.providers import providers
from streamdedup.keys.options import EmailRules, Origin
from streamdedup.threads import Lane
from tests.keys.test_extract import batch_of

PROVIDER, STRICT = EmailRules.of("provider"), EmailRules.of("strict")
RULES = [
    EmailRules(tags, dots, aliases)
    for tags in (True, False)
    for dots in (True, False)
    for aliases in (True, False)
]
DOMAINS = [
    *("gmail.com", "GoogleMail.com", "yahoo.com", "me.com", "ya.ru", "outlook.com", "example.com"),
    *(
        "a.b",
        "x-1.example.org",
        "test",
        "a.test",
        "mail.local",
        "xn--bcher-kva.example",
        "bücher.example",
    ),
    *(
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
    ),
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


YANDEX = (
    "yandex.ru",
    "yandex.ua",
    "yandex.com",
    "yandex.com.tr",
    "yandex.by",
    "yandex.kz",
    "yandex.uz",
    "ya.ru",
)
# Domains that IDNA 2008 refuses, and how they are on the wire.
LONG_DOMAIN = ".".join(["d" * 61] * 3 + ["cd"])
ON_THE_WIRE = [
    ("xn--53h1310o.ws", "xn--53h1310o.ws"),
    ("XN--53H1310O.ws", "xn--53h1310o.ws"),
    ("🐸☕.ws", "xn--53h1310o.ws"),
    ("mail.xn--ls8h.la", "mail.xn--ls8h.la"),
    ("💩.la", "xn--ls8h.la"),
    ("i❤\ufe0f.ws", "xn--i-7iq.ws"),
    ("xn--9c9b.com", "xn--9c9b.com"),  # half of a surrogate pair
    ("xn--zzzzzzzz.com", "xn--zzzzzzzz.com"),  # no Punycode
    ("xn--a.com", "xn--a.com"),  # a control
    ("bücher.xn--53h1310o.example", "xn--bcher-kva.xn--53h1310o.example"),
]


@pytest.mark.parametrize(
    ("written", "key"),
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
        *((f"A.b+c@{domain}", "a.b@yandex.ru") for domain in YANDEX),
        ("shop@Anna.Fastmail.com", "anna@fastmail.com"),
        ("a+b@anna.sent.com", "anna@sent.com"),
        ("shop@x.anna.fastmail.com", "shop@x.anna.fastmail.com"),
        ("shop@anna.gmail.com", "shop@anna.gmail.com"),
        *((f"a@{domain}", f"a@{wire}") for domain, wire in ON_THE_WIRE),
        ("ä" * 32 + "@example.com", "ä" * 32 + "@example.com"),
    ],
)
def test_an_address_is_known_as_its_provider_knows_it(written: str, key: str) -> None:
    """Case, tags, dots, aliases, letters of any alphabet: each as the table of providers and IDNA have it."""
    email = EmailNormalizer(PROVIDER)
    assert email.of_key(written.encode()) == key.encode()
    assert list(email.of_column(Column.of([written.encode()]))[0]) == [key.encode()]


@pytest.mark.parametrize(
    ("rules", "key"),
    [
        (STRICT, "a.b+c@googlemail.com"),
        (EmailRules.of("strict", tags=True), "a.b@googlemail.com"),
        (EmailRules.of("strict", dots=True), "ab+c@googlemail.com"),
        (EmailRules.of("strict", aliases=True), "a.b+c@gmail.com"),
        (EmailRules.of("provider", tags=False), "ab+c@gmail.com"),
        (EmailRules.of("provider", dots=False), "a.b@gmail.com"),
        (EmailRules.of("provider", aliases=False), "ab@googlemail.com"),
        (PROVIDER, "ab@gmail.com"),
    ],
)
def test_each_rule_is_a_switch(rules: EmailRules, key: str) -> None:
    """A preset sets all three, and each can be set by itself; the exact reader and the kernel both follow."""
    assert EmailNormalizer(rules).of_key(b"A.b+c@GoogleMail.com") == key.encode()
    assert list(plain(Column.of([b"A.b+c@GoogleMail.com"]), rules)) == [key.encode()]


@pytest.mark.parametrize("rules", RULES, ids=lambda rules: rules.names)
@given(texts=st.lists(padded, max_size=8))
@settings(deadline=None)  # compiled within
@example(texts=[f"a.B+c-d@{domain}" for domain in DOMAINS])
@example(texts=["l" * size + tag + "@gmail.com" for size in (63, 64, 65) for tag in ("", "+x")])
@example(texts=["l" * 64 + "@example.com", "l" * 242 + "@example.com", "l" * 243 + "@example.com"])
@example(texts=[f"a{chr(char)}b@example.com" for char in range(256)])
@example(texts=[f"ab@ex{chr(char)}mple.com" for char in range(256)])
def test_the_kernel_never_says_otherwise(rules: EmailRules, texts: list[str]) -> None:
    """What it knows is what the exact reader makes of the address; what that refuses it does not know."""
    email = EmailNormalizer(rules)
    cells = [text.encode("utf-8", "replace") for text in texts]
    for cell, found in zip(cells, plain(Column.of(cells), rules), strict=True):
        if found is not None:
            assert email.of_key(cell) == found
    keys, malformed = email.of_column(Column.of([None, *cells]))
    for row, (cell, key) in enumerate(zip(cells, list(keys)[1:], strict=True), 1):
        assert (key is None) == (row in malformed)
        assert key == _exact(email, cell)


@given(text=padded)
@settings(deadline=None)
def test_a_key_is_its_own_key(text: str) -> None:
    """So a list may be built of addresses as they are, or as they were normalized before."""
    email = EmailNormalizer(PROVIDER)
    key = _exact(email, text.encode("utf-8", "replace"))
    if key is not None:
        assert email.of_key(key) == key


@pytest.mark.parametrize(
    "domain",
    ["example.com", "mail.example.co.uk", "gmail.com", "x-1.example.org", "l" * 63 + ".com"],
)
def test_ordinary_addresses_go_by_the_kernel(domain: str) -> None:
    """Python is not asked for what nearly all addresses look like."""
    given = [
        f"{local}@{domain}".encode()
        for local in ("anna", "Anna.Berg", "a_b-c+d", "o'neil", "x" * 64)
    ]
    assert None not in list(plain(Column.of(given), PROVIDER))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "Q9Z",
            "Q9Z@",
            "@Q9Z.com",
            "Q9Z@Q9Z",
            "Q9Z@Q9Z.test",
            "Q9Z..x@a.com",
            "Q9Z x@a.com",
            "Q9Z<b@a.com>",
        ),
        *(
            '"Q9Z x"@a.com',
            "Q9Z@[10.0.0.1]",
            "Q9Z\u2028@a.com",
            "a@Q9Z\u200fx.com",
            "Q9Z\uff20a.com",
        ),
        *(
            "Q9Z@a.com, b@c.com",
            "(Q9Z)a@b.com",
            '"Q9Z"Q9Z@b.com',
            "Q9Z" * 10_000 + "@a.com",
            "a@Q9Z-.com",
            "Q9Z@1.1",
        ),
    ],
)
def test_a_reason_holds_nothing_of_the_address(text: str) -> None:
    """It says what is wrong, and that it is an address that was wanted."""
    keys, malformed = EmailNormalizer(PROVIDER).of_column(Column.of([text.encode()]))
    assert list(keys) == [None]
    assert malformed[0].startswith("the key is not an e-mail address: ")
    assert not re.search(r"Q9Z|U\+|\.$", malformed[0])
    assert len(malformed[0]) < 160


@pytest.mark.parametrize(
    "local",
    ["l" * 65, "ä" * 33, "l" * 60 + "+shop1", "\u0130" * 32],
    ids=["ascii", "two bytes", "tag", "lower"],
)
@pytest.mark.parametrize("domain", ["gmail.com", "bücher.example"])
def test_a_local_part_of_more_than_64_bytes_is_no_address(local: str, domain: str) -> None:
    """RFC 5321, 4.5.3.1.1: by the kernel and by Python, with what is a tag."""
    keys, malformed = EmailNormalizer(PROVIDER).of_column(Column.of([f"{local}@{domain}".encode()]))
    assert list(keys) == [None]
    assert malformed == {0: LONG_LOCAL}


@pytest.mark.parametrize(
    "domain",
    [
        "a_b.com",
        "xn--.com",
        "xn--" + "a" * 60 + ".com",
        "a\u200fb.com",
        "\u0301a.com",
        "😀",
        "x.😀.test",
    ],
)
def test_what_is_no_domain_is_none_on_the_wire(domain: str) -> None:
    """Only labels that a registry could have given away are kept."""
    with pytest.raises(MalformedError):
        EmailNormalizer(PROVIDER).of_key(f"a@{domain}".encode())


def test_what_is_no_text_is_told_as_for_other_normalizers() -> None:
    """Binary keys are no addresses, and are not hashed as such."""
    _, malformed = EmailNormalizer(PROVIDER).of_column(Column.of([b"a\xff@b.com", b"a\0@b.com"]))
    assert malformed == {0: "the key is not UTF-8", 1: malformed[1]}
    assert malformed[1].startswith("the key holds a zero byte")


def test_the_table_of_providers_is_consistent() -> None:
    """A domain once, in small letters; an alias leads to a mailbox and no further; a source for each."""
    text = files("streamdedup.data").joinpath("email_providers.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    by_domain = {row[0]: row for row in rows}
    assert len(by_domain) == len(rows)
    for domain, mailbox, tag, dots, source in rows:
        assert domain == domain.lower()
        assert by_domain[mailbox][1] == mailbox
        assert (tag, dots) == (by_domain[mailbox][2], by_domain[mailbox][3])
        assert tag in {"+", "+.", "-", "none"}
        assert dots in {"count", "ignored"}
        assert urlsplit(source).scheme == "https"
    assert set(providers(PROVIDER)) == set(by_domain)
    assert not providers(STRICT)


def test_the_identity_tells_the_rules_apart() -> None:
    """Other rules make other keys, so a snapshot or list of them is not taken for one of these."""
    identities = {EmailNormalizer(rules).id for rules in RULES}
    assert len(identities) == len(RULES)
    assert all(identity.startswith("email 1, ") for identity in identities)
    assert "table" not in EmailNormalizer(STRICT).id


@pytest.mark.parametrize(
    ("entry", "keys"),
    [
        (b"@Example.com", [b"@example.com"]),
        (b" .example.com ", [b"example.com"]),
        (b"@googlemail.com", [b"@gmail.com"]),
        (b".googlemail.com", [b"googlemail.com", b"@gmail.com"]),
        (b".xn--53h1310o.ws", [b"xn--53h1310o.ws"]),
        ("@💩.la".encode(), [b"@xn--ls8h.la"]),
        (b"@xn--9c9b.com", [b"@xn--9c9b.com"]),
        ("@Bücher.example".encode(), [b"@xn--bcher-kva.example"]),
    ],
)
def test_a_domain_of_a_list(entry: bytes, keys: list[bytes]) -> None:
    """It is held by keys that the addresses of that domain have among their candidates."""
    email = EmailNormalizer(PROVIDER)
    assert email.of_domain_entry(entry).keys == keys
    address = b"a@" + entry.strip()[1:]
    assert set(keys) & {cell for _, cell in _candidates(email.of_key(address))}


@pytest.mark.parametrize(
    "entry",
    [
        *(b"@", b".", b"", b"example.com", b"@-a.com", b"@a b.com", b"@a@b.com", b"@localhost"),
        *(
            b"@user.fastmail.com",
            b".user.sent.com",
            b"@xn--",
            b"@xn--a_b.com",
            "@💩\u200d💩.la".encode(),
        ),
    ],
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


@pytest.mark.parametrize("origin", ["key", "value", "json"])
async def test_addresses_keep_the_loop_waiting_for_nothing(origin: Origin) -> None:
    """Thousands that Python must read are read beside the loop, which has its turns meanwhile."""
    fields = ("email",) if origin == "json" else ()
    extractor = Extractor(origin, fields, normalizer=normalizer("email"))
    text = '{{"email": "a{}@bücher.example"}}' if origin == "json" else "a{}@bücher.example"
    cells: list[bytes | None] = [text.format(row).encode() for row in range(1000)]
    extractor.extract(batch_of(cells[:1], cells[:1], [[]]))  # compiled, and imported
    extracting = asyncio.create_task(
        keys_of(batch_of(cells, cells, [[]] * len(cells)), extractor, Lane(1))
    )
    turns = 0
    while not extracting.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 2
    assert (await extracting).keys[999] == b"a999@xn--bcher-kva.example"


def _exact(email: EmailNormalizer, cell: bytes) -> bytes | None:
    try:
        return email.of_key(cell)
    except MalformedError:
        return None


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


LONG = [
    "e" + "\U0001d160" * 1000 + "@b.com",
    "e" + "\U0001d161" * 247 + "@b.com",
    "e" + "\U0001d160" * 62 + "@b.com",
    "é" * 125 + "@b.com",
    "e" + "\u0301" * 124 + "@b.com",
    "a@b" + "\ufe0f" * 83 + ".com",
    "a@b" + "\u200d" * 83 + ".com",
    "a@" + "ü.\u3002" * 41 + "example",
    "l" * 249 + "@b.com",
    "e@[" + "1" * 251 + "]",
    '"' + "a" * 247 + '"@b.com',
    "e" * 248 + "<a@b.com>",
]


@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_what_has_too_many_bytes_is_refused_unread(text: str, read: list[str]) -> None:
    """The rule set refuses it, too, but after up to 30 ms of work; so it is with an entry of a list."""
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


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("l" * 64 + "@" + LONG_DOMAIN, "l" * 64 + "@" + LONG_DOMAIN),
        ("é" * 32 + "@" + LONG_DOMAIN, "é" * 32 + "@" + LONG_DOMAIN),
        ("e\u0301" * 32 + "@" + LONG_DOMAIN[32:], "é" * 32 + "@" + LONG_DOMAIN[32:]),
        ("a@bc" + "\ufe0f" * 82 + ".com", "a@bc.com"),
        ("a@" + "b。" * 62 + "cd", "a@" + "b." * 62 + "cd"),
    ],
    ids=["ASCII", "letters", "marks", "what a domain drops", "wide dots"],
)
def test_an_address_of_the_most_bytes_has_the_key_that_it_had(text: str, key: str) -> None:
    """Its bytes count as they are written, also if its key is shorter; one byte more is no address."""
    text += " " * 400
    assert len(text.strip().encode()) in (252, 253, 254)
    assert EmailNormalizer(PROVIDER).of_key(text.encode()) == key.encode()


def test_a_malformed_key_is_read_once_a_batch(read: list[str]) -> None:
    """As an address is: whoever repeats it costs no more."""
    wrong, right = "é@wrong", "é@bücher.example"
    column = Column.of([text.encode() for text in (wrong, right) * 100])
    keys, malformed = EmailNormalizer(PROVIDER).of_column(column)
    assert sorted(read) == sorted([wrong, right])
    assert list(keys)[:2] == [None, "é@xn--bcher-kva.example".encode()]
    assert list(malformed) == list(range(0, 200, 2))
    assert len({*malformed.values()}) == 1
