"""Whether a filter is the fold of this very log: compares the last record batch that it folded with the log.

A topic that was deleted and created again has another topic id. But a log that lost its end and was written anew, in an
unclean leader election or by a fail-back to an older copy, keeps its id; and a broker before Kafka 2.8 has no ids.
"""

from streamdedup.events import Fingerprint
from streamdedup.snapshot import Identity, Snapshot


def contradiction(folded: Fingerprint | None, held: Fingerprint | None) -> str | None:
    """Return why the log no longer holds the batch `folded`; None if nothing shows that.

    `held` is what the log holds in its place. Either is None if unknown. A log that agrees in one record batch agrees
    in all before it, because leaders only append.
    """
    if folded is None or held is None or folded == held:
        return None
    return (
        f"the output holds another record batch at offset {folded.offset} than the one that was folded: its log was"
        " replaced, as by an unclean leader election or a fail-back to an older copy"
    )


def doubt_of(snapshot: Snapshot, identity: Identity, held: Fingerprint | None) -> str | None:
    """Return why a snapshot is refused for the log of `identity`; None if it may be used.

    `held` is what the log holds in the place of the snapshot's fingerprint. If retention has deleted that batch, the
    topic id decides; without one, the snapshot is refused.
    """
    if held is not None:
        return contradiction(snapshot.fingerprint, held)
    if snapshot.topic_id is not None and identity.topic_id is not None:
        return None
    return (
        "nothing shows that it is of this very log: the broker reports no topic ids, and the last record batch that it"
        " folded is unknown or deleted"
    )
