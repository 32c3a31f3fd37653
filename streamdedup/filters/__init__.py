"""The kinds of filter, by name. A kind's module is imported when it is first built: it brings numba."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from streamdedup.errors import ConfigError

if TYPE_CHECKING:  # it brings numpy, which reading the settings does without
    from streamdedup.filters.base import Filter

KINDS: dict[str, str] = {
    "bloom": "streamdedup.filters.bloom:Bloom",
}


def build(config: Mapping[str, Any]) -> "Filter":
    """An empty filter of `config["kind"]`, with the rest of `config` as its arguments."""
    arguments = dict(config)
    kind: Callable[..., Filter] = _kind(arguments.pop("kind", None))
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ConfigError(f"filter {config.get('kind')!r}: {error}") from None


def from_parts(header: Mapping[str, Any], buffers: Sequence[memoryview]) -> "Filter":
    """The filter that gave this `header()` and these `buffers()`."""
    return cast("Filter", _kind(header.get("kind")).from_parts(header, buffers))


def _kind(name: object) -> Any:  # noqa: ANN401 - a class whose constructor's arguments are its own
    if name not in KINDS:
        raise ConfigError(f"filter.kind {name!r} is unknown; choose one of: {', '.join(KINDS)}")
    module, _, attribute = KINDS[str(name)].partition(":")
    return getattr(import_module(module), attribute)
