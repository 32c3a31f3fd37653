"""Which seeds are promised: `make test-all` plays the first of each sort of plan, the command all others."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from proof.simulation.plan import Plan, listed, repartitioned, screening, shadowed


@dataclass(frozen=True)
class Seeds:
    """One sort of plan: `changed` makes it of the plan that a seed draws; `promised` seeds are kept green."""

    changed: Callable[[Plan], Plan]
    promised: int
    in_tests: int

    @property
    def left(self) -> range:
        """The seeds that `make test-all` does not play."""
        return range(self.in_tests, self.promised)


def drawn(plan: Plan) -> Plan:
    """Return the plan unchanged."""
    return plan


SORTS: Mapping[str, Seeds] = {
    "drawn": Seeds(drawn, promised=2_000, in_tests=50),
    "listed": Seeds(listed, promised=200, in_tests=25),
    "screening": Seeds(screening, promised=200, in_tests=25),
    "shadowed": Seeds(shadowed, promised=200, in_tests=25),
    "repartitioned": Seeds(repartitioned, promised=200, in_tests=25),
}


def left_by_tests() -> Iterator[tuple[str, int]]:
    """Yield the sort and the number of every promised seed that `make test-all` does not play."""
    for name, seeds in SORTS.items():
        for seed in seeds.left:
            yield name, seed
