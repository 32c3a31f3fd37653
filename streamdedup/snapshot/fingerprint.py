"""Whether a filter is the fold of this very log: the last record batch that it folded is looked at again.

Topic ids tell a topic that was made again. A log whose end was lost and written anew, in an unclean leader election or
by a fail-back to an older copy, keeps its id; and a broker before Kafka 2.8 tells none.
"""

from streamdedup.events import Fingerprint
from streamdedup.snapshot import Identity, Snapshot


def contradiction(folded: Fingerprint | None, held: Fingerprint | None) -> str | None:
    """Why what was folded is not in the log, which holds `held` in the place of `folded`; None: nothing says so.

    A log that agrees in one record batch agrees in all before it: leaders only append. Either is None where unknown.
    """
    if folded is None or held is None or folded == held:
        return None
    return (
        f"the output holds another record batch at offset {folded.offset} than the one that was folded: its log was"
        " replaced, as by an unclean leader election or a fail-back to an older copy"
    )


def doubt_of(snapshot: Snapshot, identity: Identity, held: Fingerprint | None) -> str | None:
    """Why a snapshot may not be used for the log of `identity`, which holds `held` in the place of its fingerprint.

    Where retention has deleted that record batch, the topic id has to do; where there is none, nothing is left.
    """
    if held is not None:
        return contradiction(snapshot.fingerprint, held)
    if snapshot.topic_id is not None and identity.topic_id is not None:
        return None
    return (
        "nothing tells whether it is of this very log: the broker tells no topic ids, and the last record batch that it"
        " folded is unknown or deleted"
    )
