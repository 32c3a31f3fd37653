"""The JSON Schema."""

from streamdedup.settings import schema
from tests.settings.minimal import leaves, reference


class TestSchema:
    """Each leaf can be looked up in an editor."""

    def test_every_leaf_is_described_and_no_other_is_allowed(self) -> None:
        """The schema describes each option for an editor, and allows no others."""
        made = schema()
        assert made["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        for model in [made, *made["$defs"].values()]:
            assert model["additionalProperties"] is False
        described = [leaf["description"] for _, _, leaf in leaves()]
        assert all(text.endswith(".") for text in described)

    def test_every_number_is_bounded(self) -> None:
        """No leaf takes any number whatever."""
        numbers = [
            part
            for _, _, leaf in leaves()
            for part in leaf.get("anyOf", [leaf])
            if part.get("type") in ("integer", "number")
        ]
        assert len(numbers) == 20
        assert all("minimum" in part and "maximum" in part for part in numbers)

    def test_required_leaves_have_an_example(self) -> None:
        """A message about a missing leaf can show how to set it."""
        made = schema()
        names = {
            section: made["$defs"][reference(part)].get("required", [])
            for section, part in made["properties"].items()
        }
        groups = {
            "source": ("repartition", "Repartition"),
            "kafka": ("schema_registry", "SchemaRegistry"),
        }
        for section, (group, model) in groups.items():
            in_group = made["$defs"][f"{model}Options"]["required"]
            names[section] += [f"{group}.{name}" for name in in_group]
        required = {
            f"{section}.{name}": leaf.get("examples")
            for section, name, leaf in leaves()
            if name in names[section]
        }
        assert len(required) == 7
        assert all(required.values())

    def test_the_schema_requires_a_capacity_and_a_directory_only_where_there_is_a_filter(
        self,
    ) -> None:
        """`filter: null` and `kind: none` take neither, in an editor as in `load`."""
        made = schema()
        assert made["properties"]["filter"]["anyOf"][1] == {"type": "null"}
        assert made["$defs"]["FilterOptions"]["else"] == {"required": ["capacity"]}
        assert made["else"] == {"required": ["snapshot"]}
        assert "snapshot" not in made["required"]

    def test_the_schema_has_no_place_for_secrets(self) -> None:
        """An editor marks a secret in a file as wrong, as `load` does."""
        assert "hash_key" not in schema()["$defs"]["FilterOptions"]["properties"]
        options = schema()["$defs"]["KafkaOptions"]["properties"]
        assert {"sasl_plain_password", "ssl_password"}.isdisjoint(options)
        assert {"sasl_plain_password_file", "ssl_password_file"} <= set(options)
        registry = set(schema()["$defs"]["SchemaRegistryOptions"]["properties"])
        assert {"basic_auth_password", "bearer_token"}.isdisjoint(registry)
        assert {"basic_auth_password_file", "bearer_token_file"} <= registry
