"""The shard of a worker that only screens: there is nothing to fold, to save, or to compare with what is remembered."""

from streamdedup.delivery.fold import Folding
from streamdedup.delivery.resume import Found, Resume, input_offset
from streamdedup.delivery.shard import Shard
from streamdedup.kafka.topics import Topology


class Stateless(Folding):
    """In place of the folding of one partition: it asks nothing of the output's history, and nothing of the disk."""

    async def remembers(self) -> bool:
        """As `Folding.remembers`."""
        return False

    def resume(self, found: Found) -> Resume:
        """As `Folding.resume`; without a committed offset, the output does not tell where reading began."""
        settings = self._settings
        return input_offset(found, settings.source, settings.sink, remembers=False)

    def must_follow(self, found: Found) -> int | None:  # noqa: ARG002 - wherever it ends
        """As `Folding.must_follow`: what others write harms nobody."""
        return None

    async def catch_up(
        self,
        found: Found,
        topology: Topology,  # noqa: ARG002 - there is no log to know again
        foreign: tuple[int, int] | None,  # noqa: ARG002 - others may write
    ) -> Shard:
        """As `Folding.catch_up`; the label only tells where the output ended."""
        shard = self.shard or self._shard_of(self._recipe.empty_filter())
        shard.end_fold(found.output_end)
        self.shard = shard
        return shard

    async def look_at_log(self, within_s: float) -> None:
        """As `Folding.look_at_log`."""

    async def save(self, *, again: bool = False) -> None:
        """As `Folding.save`."""

    async def outrun(self, log_start: int) -> None:
        """As `Folding.outrun`."""
