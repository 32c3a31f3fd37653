"""A consumer group in memory: members with sessions, generations, assignments, committed offsets.

It behaves like Kafka's classic groups with an eager protocol. After a change of members, all of them join again; a
member that does not join in time is removed. A member whose assignor has another name than that of the members is
refused. Times are seconds of the loop's clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from aiokafka.errors import (
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

from streamdedup.kafka.partitions import InputPartition


@dataclass
class Member:
    """One member of the group. Its session expires at `alive_until` unless a heartbeat extends it."""

    topics: frozenset[str]
    assignor: str
    instance: str | None
    session_s: float
    alive_until: float
    joined: bool = True
    partitions: frozenset[InputPartition] = frozenset()


@dataclass
class Group:
    """One group. `generation` counts assignments. `settles_at` is set while the next one is being made."""

    offsets: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    generation: int = 0
    settles_at: float | None = None
    _numbers: int = 0

    def join(self, name: str | None, member: Member, now: float, rebalance_s: float) -> str:
        """Add a member to the next generation, under `name` if that is still known; return its name.

        A member with the static name of another takes that one's place in this generation, without a rebalance.
        InconsistentGroupProtocolError if any member, also the one in whose place it would come, has another assignor.
        """
        if any(known.assignor != member.assignor for known in self.members.values()):
            raise InconsistentGroupProtocolError
        for other, known in list(self.members.items()):
            if member.instance is not None and known.instance == member.instance and other != name:
                del self.members[other]
                if self.settles_at is None and known.topics == member.topics:
                    member.partitions = known.partitions
                    return self._enter(member)
        if name is None or name not in self.members:
            name = self._enter(member)
        else:
            member.partitions = self.members[name].partitions  # sticky: it keeps what it had
            self.members[name] = member
        self._rebalance(now, rebalance_s)
        member.joined = True
        return name

    def assignment(
        self, name: str, counts: Mapping[str, int], now: float
    ) -> tuple[int, frozenset[InputPartition]] | None:
        """Return the generation and the member's partitions in it; None while the group waits for other members.

        `counts` are the partitions of each topic.
        RebalanceInProgressError if the member must join first; UnknownMemberIdError if it is not a member.
        """
        member = self._member(name)
        member.alive_until = now + member.session_s
        if not member.joined:
            raise RebalanceInProgressError
        if self.settles_at is not None:
            if not all(other.joined for other in self.members.values()) and now < self.settles_at:
                return None
            self._settle(counts)
        return self.generation, member.partitions

    def heartbeat(self, name: str, generation: int, now: float) -> None:
        """Extend a member's session. Raises if the member must join again, or is none."""
        member = self._member(name)
        member.alive_until = now + member.session_s
        self.check(name, generation)
        if self.settles_at is not None:
            raise RebalanceInProgressError

    def check(self, name: str, generation: int) -> None:
        """Raise unless `name` is a member in exactly this generation."""
        self._member(name)
        if generation != self.generation:
            raise IllegalGenerationError

    def leave(self, name: str, now: float, rebalance_s: float) -> None:
        """Remove a member, which causes a rebalance."""
        if self.members.pop(name, None) is not None:
            self._rebalance(now, rebalance_s)

    def expire(self, now: float, rebalance_s: float) -> None:
        """Remove members whose session has expired."""
        gone = [name for name, member in self.members.items() if member.alive_until <= now]
        for name in gone:
            self.leave(name, now, rebalance_s)

    @property
    def assignor(self) -> str | None:
        """The name of the assignor in force; None while the group rebalances, or has no members."""
        names = {member.assignor for member in self.members.values()}
        return names.pop() if names and self.settles_at is None else None

    def begin_anew(self, now: float, rebalance_s: float) -> None:
        """Have all members join again, as when the topic has more partitions."""
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

    def _settle(self, counts: Mapping[str, int]) -> None:
        """Assign the partitions, each to a member that reads its topic.

        Each member keeps of its former partitions as many as its share; the rest go to the members with the fewest.
        """
        self.members = {name: member for name, member in self.members.items() if member.joined}
        self.generation += 1
        self.settles_at = None
        names = sorted(self.members)
        read = sorted(frozenset[str]().union(*(m.topics for m in self.members.values())))
        every = [InputPartition(t, p) for t in read for p in range(counts.get(t, 0))]
        share, more = divmod(len(every), len(names))
        shares = {name: share + (at < more) for at, name in enumerate(names)}
        kept = {
            name: {
                p
                for p in sorted(self.members[name].partitions)[: shares[name]]
                if p in every and p.topic in self.members[name].topics
            }
            for name in names
        }
        taken: set[InputPartition] = set()
        for name in names:
            kept[name] -= taken
            taken |= kept[name]
        for partition in sorted(set(every) - taken):
            able = [name for name in names if partition.topic in self.members[name].topics]
            name = min(able, key=lambda name: (len(kept[name]) - shares[name], name))
            kept[name].add(partition)
        for name in names:
            self.members[name].partitions = frozenset(kept[name])
