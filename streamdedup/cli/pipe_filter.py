"""The filter of `streamdedup pipe`: its options, and how one is made or loaded by them."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamdedup.cli.arguments import add_error_rate, as_configured
from streamdedup.cli.streams import say
from streamdedup.errors import ConfigError, with_options
from streamdedup.filters import GROWTH, KINDS, STATIC

if TYPE_CHECKING:  # it brings numpy, which --help does without
    from streamdedup.filters.base import Addable

_DEFAULTS = {"kind": "cuckoo", "capacity": 10_000_000, "error_rate": 1e-6, "hash": "siphash"}


def add_filter(pipe: argparse.ArgumentParser) -> None:
    """Add the options of the filter."""
    pipe.add_argument(
        "--kind",
        type=_kind_for_streams,
        choices=sorted(KINDS.keys() - STATIC),
        help="the kind of filter (default: cuckoo)",
    )
    pipe.add_argument(
        "--capacity",
        type=as_configured("capacity"),
        metavar="N",
        help="the number of distinct keys to make room for, for example 100_000 or 5M (default: 10M)",
    )
    add_error_rate(pipe, "new lines that may be dropped wrongly, at capacity")
    pipe.add_argument(
        "--hash",
        choices=("murmur3", "siphash"),
        help="siphash, under a new random secret; or murmur3, a little faster, if no outsider chooses the lines"
        " (default: siphash)",
    )
    pipe.add_argument(
        "--on-full",
        choices=("stop", "grow", "warn"),
        help="at capacity: grow, up to --max-size; stop with exit status 1; or warn and go on with more errors"
        " (default: grow, or stop for kinds that cannot grow)",
    )
    pipe.add_argument(
        "--max-size",
        type=as_configured("max_size"),
        metavar="BYTES",
        help=f"the most memory that the filter grows to, for example 500MB or 4GiB (default: {GROWTH} times the"
        " first)",
    )
    pipe.add_argument(
        "--load",
        type=Path,
        metavar="FILE",
        help="begin with the filter that --save has put there: what came before is dropped; its other options are those"
        " of the run that made it",
    )
    pipe.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help="put the filter there once all lines are copied; if it is also the FILE of --load, the first run may find"
        " none there",
    )


def _kind_for_streams(name: str) -> str:
    if name in STATIC:
        raise argparse.ArgumentTypeError(
            f"{name!r} is static: it is built once, from all keys, and cannot take keys from a stream; choose another"
            " kind"
        )
    return name


def filter_of(arguments: argparse.Namespace, lines: Mapping[str, Any]) -> "Addable":
    """Return the filter that is asked for, loaded or empty, and set `arguments.on_full` to what holds for it.

    `arguments.load` becomes None if there is no such file yet. `lines` says which keys the lines have. ConfigError if
    the options do not fit together or to what is loaded.
    """
    path: Path | None = arguments.load
    if path is not None and not path.exists():
        if arguments.save is None or arguments.save.resolve() != path.resolve():
            raise ConfigError(
                "--load: there is no such file; correct its name, or give --save with the same one, so that the first"
                " run begins without a file"
            )
        say(f"streamdedup: {path} is not there yet, so nothing has come before")
        path = arguments.load = None
    given = {name: value for name in _DEFAULTS if (value := getattr(arguments, name)) is not None}
    if path is None:
        return _built(arguments, _DEFAULTS | given)
    from streamdedup.commands import saved_filter
    from streamdedup.filters.base import Growing

    filter_ = saved_filter.load(path, given, lines)
    grows = isinstance(filter_, Growing)
    if not grows and (arguments.on_full == "grow" or arguments.max_size is not None):
        option = "--max-size" if arguments.max_size is not None else "--on-full grow"
        raise ConfigError(
            f"{option}: the filter of --load {path} does not grow; leave it out, or begin another file"
        )
    if isinstance(filter_, Growing) and arguments.max_size is not None:
        try:
            filter_.permit(arguments.max_size)
        except ConfigError as error:
            raise ConfigError(_as_arguments(str(error))) from None
    arguments.on_full = arguments.on_full or ("grow" if grows else "stop")
    return filter_


def _built(arguments: argparse.Namespace, options: Mapping[str, Any]) -> "Addable":
    from streamdedup.filters import build
    from streamdedup.keys.hashing import MURMUR3, Hash

    arguments.on_full = _on_full(arguments, options)
    config = {name: options[name] for name in ("kind", "capacity", "error_rate")}
    if arguments.on_full == "grow":
        config |= {"on_full": "grow"}
    if arguments.max_size is not None:
        config |= {"max_size": arguments.max_size}
    try:
        # The secret ends with the command, or is kept in the file of the filter.
        return build(config, Hash.draw() if options["hash"] == "siphash" else MURMUR3)
    except ConfigError as error:
        raise ConfigError(_as_arguments(str(error))) from None


def _on_full(arguments: argparse.Namespace, options: Mapping[str, Any]) -> str:
    """Return what happens at capacity: what is asked for, or else `grow` if the kind can grow."""
    from streamdedup.filters.options import can_grow

    grows = can_grow(options["kind"], options["error_rate"])
    on_full = arguments.on_full or ("grow" if grows else "stop")
    if options["kind"] == "window" and (on_full == "grow" or arguments.max_size is not None):
        option = "--on-full grow" if on_full == "grow" else "--max-size"
        raise ConfigError(
            f"{option} is not for --kind window, which counts lines here and is never full; leave it out"
        )
    if arguments.max_size is not None and on_full != "grow":
        instead = "give --on-full grow" if grows else "choose a --kind that can grow"
        raise ConfigError(
            f"--max-size is the size to which a filter may grow; {instead}, or leave it out"
        )
    return str(on_full)


def _as_arguments(text: str) -> str:
    """Return the same message with the options of the `filter` section under their names on this command line."""
    return with_options(text, lambda name: "--" + name.replace("_", "-"))
