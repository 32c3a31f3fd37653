"""The Bloom filter for learning, made so that threads may share it."""

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from streamdedup import forks
from streamdedup.filters.bloom import classic


class ClassicBloom(classic.ClassicBloom):  # noqa: D101 - the docstring is that of the class below it
    __doc__ = classic.ClassicBloom.__doc__

    def __init__(
        self,
        bits: int,
        hashes: int | Sequence[str | classic.KeyHash] = 4,
        *,
        family: str = "salted_md5",
    ) -> None:
        super().__init__(bits, hashes, family=family)
        self._lock = forks.lock(forks.FILTER)

    @override
    def add(self, key: object) -> bool:
        with self._lock:
            return super().add(key)

    @override
    def __contains__(self, key: object) -> bool:
        with self._lock:
            return super().__contains__(key)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            state = {**vars(self), "_table": self._table.copy()}
        del state["_lock"]
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state, _lock=forks.lock(forks.FILTER))
