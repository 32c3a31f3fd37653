"""How different spellings of one key become the same bytes: one module a normalizer, chosen by name."""

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
