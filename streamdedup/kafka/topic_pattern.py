"""The pattern by which topics are chosen (`source.pattern`): a regular expression that must match a whole name.

Python's engine tries one way after the other, and the process waits meanwhile. Anyone who may create topics can choose
the names. So a pattern is refused if a name could take too many tries; their number is estimated from its parts. Each
name is matched once as long as its topic exists, and the event loop gets a turn after each.
"""

import asyncio
import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any

NAME_CHARACTERS_MAX = 249  # of a topic, by Kafka
PATTERN_CHARACTERS_MAX = 1_000
TRIES_MAX = 20_000_000  # three times `.*`: of each name, at worst, some 0.1 s

# What `re.compile` calls first; Python names no other parser.
_parse: Any = vars(re)["_parser"].parse


def refusal_of(pattern: str) -> str | None:
    """Return why `pattern` is refused; else None.

    It is no regular expression, it matches no name that a topic may have, or a name could keep it busy.
    """
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        return f"must have at most {PATTERN_CHARACTERS_MAX} characters"
    try:
        re.compile(pattern)
        parsed = _parse(pattern)
        tries = _tries(parsed)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is no regular expression: {error}"
    if pattern.startswith("__"):
        return (
            "can match no topic: those with __ belong to Kafka and its tools; name topics of events"
        )
    least, most = parsed.getwidth()
    if most == 0 or least > NAME_CHARACTERS_MAX or any(map(_in_no_name, parsed)):
        return (
            f"can match no topic: it must match a whole name, 1 to {NAME_CHARACTERS_MAX} of the characters"
            " a-z A-Z 0-9 . _ -; to name several, write a|b, or use source.topics"
        )
    if tries > TRIES_MAX:
        return "could take too long on a long name: use at most three parts like .* or [a-z]+, and none within another"
    return None


class TopicPattern:
    """A pattern, and its answer for each name that it was last asked about: to match one may take 0.1 s."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)
        self._answers = dict[str, bool]()

    async def matching(self, names: Collection[str]) -> list[str]:
        """Return those of `names` that the whole pattern matches, in order of the alphabet.

        The answers for names that are not among them are forgotten. If this is cancelled, those found so far are kept.
        """
        answers = self._answers
        for name in names:
            if name not in answers:
                answers[name] = self.matches(name)
                await asyncio.sleep(0)
        self._answers = {name: answers[name] for name in names}
        return sorted(name for name in names if answers[name])

    def matches(self, name: str) -> bool:
        """Match one name."""
        return self._pattern.fullmatch(name) is not None


@lru_cache(maxsize=1)
def topic_pattern(pattern: str) -> TopicPattern:
    """Return the pattern, always the same for all who ask in this process, so that they share its answers."""
    return TopicPattern(pattern)


def _in_no_name(part: tuple[Any, Any]) -> bool:
    """Whether a part of an expression is a character that no name of a topic has."""
    operation, character = part
    if str(operation) != "LITERAL":
        return False
    return not (chr(character).isascii() and (chr(character).isalnum() or chr(character) in "._-"))


def _tries(parsed: Iterable[tuple[Any, Any]]) -> int:
    """Return in how many ways, at most, the parts of an expression could share a name among themselves."""
    ways = 1
    for operation, arguments in parsed:
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, most, body = arguments
            inner, most = _tries(body), min(int(most), NAME_CHARACTERS_MAX)
            if inner > 1 and most > 1:
                return TRIES_MAX + 1
            ways *= inner * max(1, most - least + 1)
        elif name == "BRANCH":
            ways *= sum(_tries(branch) for branch in arguments[1])
        else:
            ways *= _nested(arguments)
        if ways > TRIES_MAX:
            return ways
    return ways


def _nested(arguments: Any) -> int:
    """Return the ways of what is within a group or a look-around; 1 of all else.

    The parser gives the body of an atomic group as it is, and that of any other among other arguments.
    """
    ways = 1
    for argument in arguments if isinstance(arguments, tuple) else (arguments,):
        if type(argument).__name__ == "SubPattern":
            ways *= _tries(argument)
    return ways
