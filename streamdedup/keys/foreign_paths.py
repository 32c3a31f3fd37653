"""Paths of fields as other tools write them, and as they are written here.

Here, too, they are paths, of one odd name or more: `$.id` leads to the name `$`, then `id`. So they are only warned of.
"""

import re
from collections.abc import Iterator

from streamdedup.keys.options import KeyOptions

# What stands around the path or paths, as in a template.
_AROUND = re.compile(r"\s*[$%]?\{+\s*(?P<inside>.*?)\s*\}+\s*|\s*\[(?P<list>.*,.*)\]\s*")
_QUOTED = r"""'[^']*'|"[^"]*"|`[^`]*`"""
# A step: after an arrow or a dot, in brackets, or at the beginning.
_STEP = re.compile(
    rf"(?:->>?|/|\.|^)\s*(?P<name>{_QUOTED}|[^][.,;/'\"`\s>-]+(?:-[^][.,;/'\"`\s>-]+)*)"
    rf"|\.?\[\s*(?P<index>\d+|\*|{_QUOTED}|)\s*\]"
)
_BEGINS = re.compile(r"[$@](?=[.\[])|#(?=/)")
_BETWEEN = re.compile(rf"\s*[,;]\s*(?=(?:[^'\"`]|{_QUOTED})*$)")
_OR = re.compile(r"\s*//\s*")
_ANY = ("*", "", "#")  # an element, whichever it is
# In what has no form that is known.
_ODD = re.compile(r"//|(?!/).*(?:^[$@](?:[.\[]|$)|\.\.|\.$|[][]|->)")


def warnings(key: KeyOptions) -> Iterator[str]:
    """Yield, for each path that looks like one of another tool, how it is written here."""
    for path in key.paths:
        ours = translated(path)
        if ours is None and not _ODD.match(path):
            continue
        what = "names joined by dots, or a JSON Pointer, is a path"
        if ours:
            wild = any(step in _ANY for each in ours for one in each for step in one)
            one_of = ", for one element: there is no path to all of them" if wild else ""
            what = f"{_shown(ours, key)} is the same{one_of}"
        option = "key.parts" if key.parts else "key.field"
        yield f"{option}: {path!r} looks like a path of another tool; here, {what}"


def translated(path: str) -> list[list[list[str]]] | None:
    """Return the steps of each path that `path` holds; None if it is written as it would be here.

    The outer list has the parts of the key, the one in it what may stand for a part.
    """
    if re.match(r"/(?!/)", path):
        return None
    around = _AROUND.fullmatch(path)
    text = (around["inside"] or around["list"] or "") if around else path.strip()
    parts = [[_steps(one) for one in _OR.split(part)] for part in _BETWEEN.split(text)]
    is_ours = parts == [[path.split(".")]] and not set(_ANY) & set(parts[0][0])
    if is_ours or not all(all(part) for part in parts):
        return None
    return parts


def _steps(text: str) -> list[str]:
    """Return the steps of one path; none if it is of no form that is known."""
    at, steps = 0, list[str]()
    text = _BEGINS.sub("", text, count=1) if _BEGINS.match(text) else text
    while at < len(text):
        found = _STEP.match(text, at) or (_STEP.match(f".{text[at:]}") if at == 0 else None)
        if found is None or found.end() == 0:
            return []
        at = found.end() if found.string == text else found.end() - 1
        step = found["name"] if found["index"] is None else found["index"]
        steps.append(step[1:-1] if step[:1] in ("'", '"', "`") and step else step)
    return steps


def _shown(parts: list[list[list[str]]], key: KeyOptions) -> str:
    listed = [
        f"[{', '.join(map(_ours, part))}]" if len(part) > 1 else _ours(part[0]) for part in parts
    ]
    if key.parts or any(len(part) > 1 for part in parts):
        return f"parts: [{', '.join(f'{{field: {each}}}' for each in listed)}]"
    return f"[{', '.join(listed)}]" if len(listed) > 1 else listed[0]


def _ours(steps: list[str]) -> str:
    steps = ["0" if step in _ANY else step for step in steps]
    if any("." in step or not step for step in steps) or steps[0][0] == "/":
        return "/" + "/".join(step.replace("~", "~0").replace("/", "~1") for step in steps)
    return ".".join(steps)
