"""A consumer group in memory: members with sessions, generations, assignments, committed offsets.

As Kafka's classic groups with an eager protocol: a change of members has all of them join again; who does not in time
is out. Times are seconds of the loop's clock.
"""

from dataclasses import dataclass, field

from aiokafka.errors import IllegalGenerationError, RebalanceInProgressError, UnknownMemberIdError


@dataclass
class Member:
    """One member of the group; its session ends at `alive_until` unless it says that it lives."""

    topic: str
    instance: str | None
    session_s: float
    alive_until: float
    joined: bool = True
    partitions: frozenset[int] = frozenset()


@dataclass
class Group:
    """One group. `generation` counts assignments; while `settles_at` is set, the next is being made."""

    offsets: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    generation: int = 0
    settles_at: float | None = None
    _numbers: int = 0

    def join(self, name: str | None, member: Member, now: float, rebalance_s: float) -> str:
        """Take part in the next generation; under `name`, where it is still known, else a new one.

        Who bears the name of a static member takes its place in this generation, and nobody else hears of it.
        """
        for other, known in list(self.members.items()):
            if member.instance is not None and known.instance == member.instance and other != name:
                del self.members[other]
                if self.settles_at is None and known.topic == member.topic:
                    member.partitions = known.partitions
                    return self._enter(member)
        if name is None or name not in self.members:
            name = self._enter(member)
        else:
            member.partitions = self.members[name].partitions  # sticky: what it had it gets again
            self.members[name] = member
        self._rebalance(now, rebalance_s)
        member.joined = True
        return name

    def assignment(
        self, name: str, partitions: int, now: float
    ) -> tuple[int, frozenset[int]] | None:
        """The generation and what is the member's in it; None while others are waited for."""
        member = self._member(name)
        member.alive_until = now + member.session_s
        if not member.joined:
            raise RebalanceInProgressError
        if self.settles_at is not None:
            if not all(other.joined for other in self.members.values()) and now < self.settles_at:
                return None
            self._settle(partitions)
        return self.generation, member.partitions

    def heartbeat(self, name: str, generation: int, now: float) -> None:
        """Say that a member lives; raises what it has to know."""
        member = self._member(name)
        member.alive_until = now + member.session_s
        self.check(name, generation)
        if self.settles_at is not None:
            raise RebalanceInProgressError

    def check(self, name: str, generation: int) -> None:
        """Raise unless `name` is a member in this very generation."""
        self._member(name)
        if generation != self.generation:
            raise IllegalGenerationError

    def leave(self, name: str, now: float, rebalance_s: float) -> None:
        """A member goes."""
        if self.members.pop(name, None) is not None:
            self._rebalance(now, rebalance_s)

    def expire(self, now: float, rebalance_s: float) -> None:
        """Drop members whose session is over."""
        gone = [name for name, member in self.members.items() if member.alive_until <= now]
        for name in gone:
            self.leave(name, now, rebalance_s)

    def begin_anew(self, now: float, rebalance_s: float) -> None:
        """Have all join again, as when the topic has more partitions."""
        self._rebalance(now, rebalance_s)

    def _enter(self, member: Member) -> str:
        self._numbers += 1
        name = f"member-{self._numbers}"
        self.members[name] = member
        return name

    def _member(self, name: str) -> Member:
        if name not in self.members:
            raise UnknownMemberIdError
        return self.members[name]

    def _rebalance(self, now: float, rebalance_s: float) -> None:
        if self.settles_at is not None:
            return
        for member in self.members.values():
            member.joined = False
        self.settles_at = now + rebalance_s

    def _settle(self, partitions: int) -> None:
        """Assign: everybody keeps of what it had as much as is its share, the rest goes to who has least."""
        self.members = {name: member for name, member in self.members.items() if member.joined}
        self.generation += 1
        self.settles_at = None
        names = sorted(self.members)
        share, more = divmod(partitions, len(names))
        shares = {name: share + (at < more) for at, name in enumerate(names)}
        kept = {
            name: {
                p for p in sorted(self.members[name].partitions)[: shares[name]] if p < partitions
            }
            for name in names
        }
        taken: set[int] = set()
        for name in names:
            kept[name] -= taken
            taken |= kept[name]
        for partition in sorted(set(range(partitions)) - taken):
            name = min(names, key=lambda name: (len(kept[name]) - shares[name], name))
            kept[name].add(partition)
        for name in names:
            self.members[name].partitions = frozenset(kept[name])
