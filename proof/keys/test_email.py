"""Claims about e-mail addresses: all providers and domains, the kernel at every edge, and the longest ones."""

from itertools import product

from streamdedup.keys.normalizers.email import EmailNormalizer
from streamdedup.keys.normalizers.email_column import plain
from streamdedup.keys.options import EmailRules
from tests.keys.reading import agrees
from tests.keys.test_email import DOMAINS, PROVIDER, RULES, is_known_as
from tests.rows import table

YANDEX = *(f"yandex.{end}" for end in ("ru", "ua", "com", "com.tr", "by", "kz", "uz")), "ya.ru"
LONG_DOMAIN = ".".join(["d" * 61] * 3 + ["cd"])


# Domains that IDNA 2008 refuses, and how they are on the wire.
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


EDGES = [
    [f"a.B+c-d@{domain}" for domain in DOMAINS],
    ["l" * size + tag + "@gmail.com" for size in (63, 64, 65) for tag in ("", "+x")],
    ["l" * 64 + "@example.com", "l" * 242 + "@example.com", "l" * 243 + "@example.com"],
    [f"a{chr(char)}b@example.com" for char in range(256)],
    [f"ab@ex{chr(char)}mple.com" for char in range(256)],
]


@table(product(RULES, EDGES))
def test_the_kernel_never_says_otherwise_at_the_edges(rules: EmailRules, texts: list[str]) -> None:
    """Of each byte, of sizes and of domains, under each rule and all of them."""
    agrees(EmailNormalizer(rules), lambda cells: plain(cells, rules), texts)


@table(
    [
        ("l" * 64 + "@" + LONG_DOMAIN, "l" * 64 + "@" + LONG_DOMAIN),
        ("é" * 32 + "@" + LONG_DOMAIN, "é" * 32 + "@" + LONG_DOMAIN),
        ("e\u0301" * 32 + "@" + LONG_DOMAIN[32:], "é" * 32 + "@" + LONG_DOMAIN[32:]),
        ("a@bc" + "\ufe0f" * 82 + ".com", "a@bc.com"),
        ("a@" + "b。" * 62 + "cd", "a@" + "b." * 62 + "cd"),
    ]
)
def test_an_address_of_the_most_bytes_has_the_key_that_it_had(text: str, key: str) -> None:
    """Its bytes count as they are written, also if its key is shorter; one byte more is no address."""
    text += " " * 400
    assert len(text.strip().encode()) in (252, 253, 254)
    assert EmailNormalizer(PROVIDER).of_key(text.encode()) == key.encode()


@table(
    [
        *((f"A.b+c@{domain}", "a.b@yandex.ru") for domain in YANDEX),
        *((f"a@{domain}", f"a@{wire}") for domain, wire in ON_THE_WIRE),
    ]
)
def test_a_domain_is_known_by_each_of_its_names(written: str, key: str) -> None:
    """As the table of providers and IDNA have it."""
    is_known_as(written, key)
