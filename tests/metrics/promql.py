"""What an expression of Prometheus asks for: its series, by name, and the labels that it names."""

from collections.abc import Iterator
from typing import NamedTuple

from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    MatrixSelector,
    ParenExpr,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
    parse,
)

OF_PROMETHEUS = frozenset({"job", "instance"})
"""The labels that Prometheus adds to each series."""


class Asked(NamedTuple):
    """A series, and the labels by which it is chosen."""

    name: str
    labels: frozenset[str]


def asked(expression: str) -> list[Asked]:
    """Return all series of an expression. ValueError if it does not parse."""
    return list(_series(parse(expression)))


def grouped(expression: str) -> set[str]:
    """Return the labels by which it groups or matches."""
    return set(_labels(parse(expression)))


def _inner(node: object) -> list[object]:
    match node:
        case BinaryExpr():
            return [node.lhs, node.rhs]
        case AggregateExpr() | ParenExpr() | UnaryExpr() | SubqueryExpr():
            return [node.expr]
        case Call():
            return list(node.args)
        case MatrixSelector():
            return [node.vector_selector]
        case _:
            return []


def _series(node: object) -> Iterator[Asked]:
    if isinstance(node, VectorSelector):
        yield Asked(node.name or "", frozenset(each.name for each in node.matchers.matchers))
    for part in _inner(node):
        yield from _series(part)


def _labels(node: object) -> Iterator[str]:
    if isinstance(node, AggregateExpr) and node.modifier:
        yield from node.modifier.labels
    if isinstance(node, BinaryExpr) and node.modifier:
        yield from node.modifier.group_labels or ()
        yield from node.modifier.matching.labels if node.modifier.matching else ()
    for part in _inner(node):
        yield from _labels(part)
