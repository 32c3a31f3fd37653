"""How a kind of filter is described: once, as a `Kind`, in the `kinds.py` of its family, which imports no kernels."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamdedup.errors import ConfigError
from streamdedup.filters.sizing import TABLE_BITS_MAX
from streamdedup.units import count


@dataclass(frozen=True, slots=True)
class Footprint:
    """The size and error rate of a filter that could be made.

    `hashes` is the number of places in which a key is looked up: bits, counters, slots or buckets. `error` returns the
    error rate that theory predicts for a number of keys. `spare_bytes` is what the stash may take beyond `size_bytes`
    up to the capacity, if somebody chooses keys.
    """

    size_bytes: int
    hashes: int
    error: Callable[[int], float]
    spare_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """What there is to know of a kind before its module, which takes time to load, is imported.

    `sizes` takes what `footprint` takes, and returns the same, for an error rate above 0.
    """

    name: str
    path: str
    """The module below `streamdedup.filters`, and the class."""
    sizes: Callable[..., Footprint]
    abilities: tuple[str, ...]
    """Some of: add, remove, union, window, static. A kind that is `static` is built once, from all of its keys."""
    options: tuple[str, ...] = ()
    """Those besides the options that all kinds share. One with `multiset` is a set unless that is set."""
    only_sets_bits: bool = False
    celled: bool = False
    """Whether each key takes a cell, or, if there is none for it, a row of the stash."""
    error_rate_min: float = 0.0
    no_stages: str = ""
    """Why the kind accepts no `on_full: grow`; empty if it does."""
    planned: Callable[[int, float], Mapping[str, int]] = lambda _capacity, _error_rate: {}
    """The options with which `plan` would build it, for a capacity and an error rate."""

    def footprint(self, capacity: int, error_rate: float, **options: object) -> Footprint:
        """The filter that the constructor would make, with these options of the kind; allocates nothing.

        Raises ConfigError if no such filter can be made. Its text is the reason only, without the option or a remedy.
        """
        if not error_rate:
            raise ConfigError("an error rate of 0 is not possible")
        return self.sizes(capacity, error_rate, **options)

    def check(self, capacity: int, error_rate: float, **options: object) -> None:
        """Raise ConfigError, with the reason and what to change, unless such a filter can be made."""
        try:
            self.footprint(capacity, error_rate, **options)
        except ConfigError as error:
            most = largest(capacity, lambda keys: self.footprint(keys, error_rate, **options))
            lower = f"{most}, " if most else ""
            raise ConfigError(
                f"filter.capacity {capacity} at filter.error_rate {error_rate} does not fit filter.kind {self.name}:"
                f" {error}; {lower}raise filter.error_rate, or choose another filter.kind"
            ) from None

    @property
    def static(self) -> bool:
        """Whether the kind is for lists, not for streams."""
        return "static" in self.abilities

    @property
    def grows(self) -> bool:
        """Whether the kind accepts `on_full: grow`."""
        return not self.static and not self.no_stages


def largest(capacity: int, made: Callable[[int], object]) -> str:
    """The remedy for a `capacity` for which `made` raises ConfigError: the largest that fits, in two or three digits.

    Empty if that is less than a thousandth of `capacity` or so.
    """
    step = 10 ** max(0, len(str(capacity)) - 3)
    candidates = range(step, capacity, step)

    def refused(keys: int) -> bool:
        try:
            made(keys)
        except ConfigError:
            return True
        return False

    at = bisect_left(candidates, True, key=refused)
    if not at:
        return ""
    most = candidates[at - 1]
    at_most = count(1, most, "keys").format(most)
    return f"set filter.capacity to {at_most} at most"


def celled(cells: int, cell_bits: int, hashes: int, error: Callable[[int], float]) -> Footprint:
    """The footprint of cells that are packed to the bit, one more word, and an empty stash.

    The word is there because the last cell, too, is read from two words.
    """
    from streamdedup.filters import stash

    size_bytes = table_bytes(cells * cell_bits) + 8 + stash.STASH_BYTES_MIN
    return Footprint(size_bytes, hashes, error, stash.spare_bytes())


def table_bytes(bits: int) -> int:
    """The bytes of so many bits, in whole words. Raises ConfigError if they are more than 1 TiB."""
    if bits > TABLE_BITS_MAX:
        raise ConfigError(f"it takes {bits / TABLE_BITS_MAX:.3g} TiB, and the most is 1 TiB")
    return -(-bits // 64) * 8


def check_width(what: str, bits: int, most: int) -> None:
    """Raise ConfigError if a part of a cell takes more than `most` bits."""
    if bits > most:
        raise ConfigError(f"it takes {what} of {bits} bits, and the most is {most}")


def too_low(least: float) -> ConfigError:
    """The error for an error rate below `least`, the lowest of a kind."""
    return ConfigError(f"its lowest error rate is {least:.2g}")
