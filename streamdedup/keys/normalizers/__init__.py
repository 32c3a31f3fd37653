"""How different spellings of one key become the same bytes: one module a normalizer, chosen by name."""

from streamdedup.keys.normalizers.base import Normalizer, characters_check
from streamdedup.keys.normalizers.text import VERSION, TextNormalizer, lowercase
from streamdedup.keys.options import EmailRules, Normalization

__all__ = ["Normalizer", "normalizer"]


def normalizer(name: Normalization, email: EmailRules | None = None) -> Normalizer | None:
    """Return the normalizer of this name; None for `none`, which leaves keys as they are.

    Only the normalizer `email` uses the rules `email`; without them it takes those of the preset `provider`.
    """
    if name == "none":
        return None
    if name == "email":
        from streamdedup.keys.normalizers.email import EmailNormalizer

        return EmailNormalizer(email or EmailRules.of("provider"))
    lowers = name == "lowercase"
    rules_id = f"{name} {VERSION}"
    identity = f"{rules_id}, CRC-32 {characters_check(lowers=lowers):08x}"
    return TextNormalizer(identity, rules_id, lowercase if lowers else str.strip, lowers)
