"""How different spellings of one key become the same bytes: one module a normalizer, chosen by name."""

# How to add a normalization (paths are below `streamdedup/`, unless they begin with another folder)
#
# 1. `keys/options.py`: the name in `Normalization`, and a sentence in the description of `normalize`. If it has rules,
#    a frozen dataclass of them, their options, and their names in `_RULES` and `KeyOptions.rules`.
# 2. A module here: what it does to one key and to a column, by the protocol of `keys/normalizers/base.py`, whose `id`
#    names all that a key depends on. If a kernel reads most keys, a module for it, which `rules/__init__.py` warms up.
# 3. Here: a case in `normalizer`. `cli/arguments.py` and `cli/list_build.py`: the name in the choices of `--normalize`.
# 4. If it has rules: `lists/normalization.py` and `keys/key_normalizer.py`, for lists and for filters of the library.
# 5. Tests: a file of its own, in which the kernel and the Python code are compared, and `test_key_normalizer.py`. The
#    golden meanings, lists and configuration change.
# 6. Documents: docs/keys.md with its reasons, and the table of docs/configuration.md, which `settings/tree.py` says how
#    to generate.

from streamdedup.keys.normalizers.base import Normalizer, characters_check
from streamdedup.keys.normalizers.text import VERSION, TextNormalizer, lowercase
from streamdedup.keys.options import EmailRules, Normalization, UrlRules

__all__ = ["Normalizer", "normalizer"]


def normalizer(
    name: Normalization, rules: EmailRules | UrlRules | None = None
) -> Normalizer | None:
    """Return the normalizer of this name; None for `none`, which leaves keys as they are.

    `rules` are those of `email` or `url`, and count for nothing else. Without them, `email` takes those of the preset
    `provider`, and `url` none.
    """
    if name == "none":
        return None
    if name == "email":
        from streamdedup.keys.normalizers.email import EmailNormalizer

        return EmailNormalizer(
            rules if isinstance(rules, EmailRules) else EmailRules.of("provider")
        )
    if name == "url":
        from streamdedup.keys.normalizers.url import UrlNormalizer

        return UrlNormalizer(rules if isinstance(rules, UrlRules) else UrlRules())
    lowers = name == "lowercase"
    rules_id = f"{name} {VERSION}"
    identity = f"{rules_id}, CRC-32 {characters_check(lowers=lowers):08x}"
    return TextNormalizer(identity, rules_id, lowercase if lowers else str.strip, lowers)
