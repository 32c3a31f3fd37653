"""Claims about the client: it returns whole schemas, and knows who is away, who refuses, and who is no registry."""

from typing import Any

import pytest
from pydantic import SecretStr

from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.kafka.registry_options import SchemaRegistryOptions
from streamdedup.keys.formats.schema import Reference, Schema
from streamdedup.registry import client
from streamdedup.registry.client import Client, RegistryAwayError, UnknownSchemaError
from tests.registry.stand_ins import answering
from tests.rows import table

FIRST, TYPES = "/api/schemas/ids/7", "/api/schemas/types"


def client_of(url: str, **options: Any) -> Client:
    """Return a client of the registry at `url`."""
    return Client(SchemaRegistryOptions(url=url, **options))


def refer(name: str, version: int = 1) -> dict[str, Any]:
    """Return a reference as a registry writes it."""
    return {"name": name, "subject": f"of {name}/", "version": version}


def there(name: str, version: int = 1) -> str:
    """Return the path at which it is."""
    return f"/api/subjects/of%20{name}%2F/versions/{version}?deleted=true"


def test_a_schema_comes_with_all_that_it_refers_to() -> None:
    """Each once, after those that it refers to itself; and they may refer to one another in a circle."""
    answers = {
        FIRST: (200, {"schema": "0", "references": [refer("a"), refer("b"), refer("c", 3)]}),
        there("a"): (200, {"schema": "A", "references": [refer("b")]}),
        there("b"): (200, {"schema": "B", "references": [refer("c", 3)]}),
        there("c", 3): (200, {"schema": "C", "references": [refer("a")]}),
    }
    with answering(answers) as served:
        schema = client_of(served.url).schema(7)
    references = (Reference("c", "C"), Reference("b", "B"), Reference("a", "A"))
    assert schema == Schema("AVRO", "0", references)
    assert len(served.asked) == 4


def test_the_type_of_a_schema_is_left_out_for_avro_alone() -> None:
    """As registries do it."""
    answers = {FIRST: (200, {"schema": "{}", "schemaType": "JSON"})}
    with answering(answers) as served:
        assert client_of(served.url + "/").schema(7) == Schema("JSON", "{}")


def test_a_guid_has_a_path_of_its_own() -> None:
    """That of registries since Confluent's 8.1; an older one does not have the schema."""
    guid = "00112233-4455-6677-8899-aabbccddeeff"
    answers = {f"/api/schemas/guids/{guid}": (200, {"schema": "{}", "references": [refer("a")]})}
    answers[there("a")] = (200, {"schema": "A"})
    with answering(answers) as served:
        assert client_of(served.url).schema(guid) == Schema("AVRO", "{}", (Reference("a", "A"),))
        with pytest.raises(UnknownSchemaError):
            client_of(served.url).schema(guid.replace("0", "1"))


def test_a_context_is_part_of_the_path() -> None:
    """With or without the dot that it begins with."""
    answers = {"/api/contexts/.eu/schemas/ids/7": (200, {"schema": "{}"})}
    with answering(answers) as served:
        for context in ("eu", ".eu"):
            assert client_of(served.url, context=context).schema(7).text == "{}"


def test_credentials_are_sent() -> None:
    """A user and a password, or a token."""
    with answering({FIRST: (200, {"schema": "{}"})}) as served:
        password = SecretStr("pass:word")
        client_of(served.url, basic_auth_user="me", basic_auth_password=password).schema(7)
        client_of(served.url, bearer_token=SecretStr("abc")).schema(7)
        client_of(served.url).schema(7)
    sent = [headers.get("authorization") for _, headers in served.asked]
    assert sent == ["Basic bWU6cGFzczp3b3Jk", "Bearer abc", None]


@pytest.mark.parametrize("code", [40401, 40402, 40403])
def test_an_unknown_schema_is_no_wrong_address(code: int) -> None:
    """By the code in the answer: a proxy, or a path that is wrong, answers 404, too."""
    with answering({FIRST: (404, {"error_code": code})}) as served:
        with pytest.raises(UnknownSchemaError):
            client_of(served.url).schema(7)
        served.by_path[FIRST] = 404, b"<html>"
        with pytest.raises(DeliveryError, match="as no schema registry does: status 404"):
            client_of(served.url).schema(7)


@pytest.mark.finding("registry-refuses")
@pytest.mark.parametrize("status", [401, 403])
def test_a_registry_that_refuses_us_is_not_waited_for(status: int) -> None:
    """Only an operator can help."""
    with answering({FIRST: (status, b""), TYPES: (status, b"")}) as served:
        with pytest.raises(ConfigError, match=f"refuses us, with status {status}"):
            client_of(served.url).check()
        with pytest.raises(DeliveryError, match=f"refuses us, with status {status}"):
            client_of(served.url).schema(7)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_registry_that_cannot_answer_is_away(status: int) -> None:
    """It is asked again later."""
    with answering({FIRST: (status, {}), TYPES: (status, {})}) as served:
        for call in (client_of(served.url).check, lambda: client_of(served.url).schema(7)):
            with pytest.raises(RegistryAwayError, match=f"status {status}"):
                call()
    with pytest.raises(
        RegistryAwayError, match=r"no answer from 127.0.0.1:\d+: Connection refused"
    ):
        client_of(served.url).check()  # nobody listens there any more


@pytest.mark.parametrize("first", [(404, {"error_code": 40403}), (200, {"schema": '"string"'})])
def test_a_registry_that_does_not_know_its_types_is_there(first: tuple[int, Any]) -> None:
    """Old ones do not have that path, but know schemas, or that there is none of an id."""
    with answering({TYPES: (404, b"<html>"), "/api/schemas/ids/1": first}) as served:
        client_of(served.url).check()


@table([(404, {"status": 404}), (404, b"<html>"), (200, b"<html>"), (200, {}), (301, b"")])
def test_a_wrong_address_is_found_at_the_start(types: tuple[int, Any]) -> None:
    """The path is missing, or leads to another server or a page for people."""
    with (
        answering({TYPES: types, "/api/schemas/ids/1": types}) as served,
        pytest.raises(ConfigError, match="url answers as no schema registry does"),
    ):
        client_of(served.url).check()


@table(
    [
        ((200, b"<html>"), "status 200 and no JSON"),
        ((200, []), "status 200"),
        ((302, b""), "status 302"),
        ((200, {"schema": 7}), "a schema that is no text"),
        ((200, {"schema": "{}", "schemaType": ["AVRO"]}), "a type that is no text"),
        ((200, {"schema": "{}", "references": 5}), "references that are no list"),
        ((200, {"schema": "{}", "references": [{"name": "a"}]}), "a reference without a subject"),
        ((200, b" " * ((4 << 20) + 1)), "an answer of more than 4 MiB"),
    ]
)
def test_what_answers_otherwise_is_no_registry(answer: tuple[int, Any], why: str) -> None:
    """The worker stops, and says what it was answered."""
    with answering({FIRST: answer}) as served:
        for _ in range(2):  # a connection that was not read to its end is not used again
            with pytest.raises(DeliveryError, match=why):
                client_of(served.url).schema(7)


def referring(count: int, text: str = "A") -> dict[str, tuple[int, Any]]:
    """Return the answers for a schema whose reference refers to another, and so on."""
    answers: dict[str, tuple[int, Any]] = {
        there(f"{number}"): (200, {"schema": text, "references": [refer(f"{number + 1}")]})
        for number in range(count)
    }
    answers[there(f"{count}")] = 200, {"schema": text}
    answers[FIRST] = 200, {"schema": "{}", "references": [refer("0")]}
    return answers


@pytest.mark.parametrize(
    ("limit", "at_most", "answers", "why"),
    [
        ("REFERENCES_MAX", 2, referring(3), "it has more than 2 references"),
        ("ANSWER_BYTES_MAX", 999, referring(3, "A" * 400), "its references have more than 0 MiB"),
        ("ANSWER_BYTES_MAX", 9, referring(1), "it has more than 0 MiB"),
    ],
)
def test_a_schema_beyond_a_limit_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    at_most: int,
    answers: dict[str, tuple[int, Any]],
    why: str,
) -> None:
    """It stops nothing, since anybody may have registered it; and no digest says that it was read."""
    monkeypatch.setattr(client, limit, at_most)
    with answering(answers) as served:
        schema = client_of(served.url).schema(7)
    assert (schema.why_not, schema.digest) == (why, "")


def test_a_subject_may_have_any_name() -> None:
    """Of half a surrogate pair, too, which no address can hold."""
    half = {"name": "a", "subject": "\ud800", "version": 1}
    answers = {
        FIRST: (200, {"schema": "{}", "references": [half]}),
        "/api/subjects/%3F/versions/1?deleted=true": (200, {"schema": "A"}),
    }
    with answering(answers) as served:
        assert client_of(served.url).schema(7).references == (Reference("a", "A"),)


def test_an_answer_that_comes_byte_by_byte_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte is in time, and all of them together are not."""
    monkeypatch.setattr(client, "ANSWER_S_MAX", 0.0)
    monkeypatch.setattr(client, "READ_BYTES", 1)
    with (
        answering({FIRST: (200, {"schema": "{}"})}) as served,
        pytest.raises(RegistryAwayError, match="an answer that takes longer than 0 s"),
    ):
        client_of(served.url).schema(7)
