"""Marks in handles of drivers: which gateway made a handle, and that one of the members did.

A client may send a handle to any gateway. The mark names the one that has the session or the statement, without a look
at the metastore, and nobody can invent it who does not know the members' secret.
"""

from __future__ import annotations

import hmac

from gateway.http.forwarding.peers import OtherGateway, Peers
from metastore.members.membership import EPOCH_BYTES, Membership

MARK_BYTES = 16
UNREACHABLE = "The gateway that has the session does not answer, though it lives; try again soon."


class Handles:
    """Makes marks, and finds the gateway that answers for a marked handle.

    peers: the other gateways; None: there are none.
    """

    def __init__(self, membership: Membership, peers: Peers | None = None) -> None:
        self._membership = membership
        self._peers = peers

    def mark(self, subject: bytes) -> bytes:
        """Return the mark of a handle that this gateway makes. subject: the rest of the handle."""
        epoch = self._membership.epoch
        return epoch + self._proof(epoch, subject)

    def is_ours(self, mark: bytes) -> bool:
        """Tell whether this gateway made a handle, since it last joined the others."""
        return mark[:EPOCH_BYTES] == self._membership.epoch

    def is_orphan(self, subject: bytes, mark: bytes) -> bool:
        """Tell whether a member made a handle that is not this gateway of now; if it lives, it answers itself."""
        return not self.is_ours(mark) and self._is_proved(subject, mark)

    def owner(self, subject: bytes, mark: bytes, query_id: str | None = None) -> OtherGateway | None:
        """Return the gateway that answers for a handle; None: this one.

        query_id: of a handle of a statement: if the gateway that made it is gone, another one may run that.
        """
        if self._peers is None or not self.is_orphan(subject, mark):
            return None
        owner = self._peers.of_epoch(mark[:EPOCH_BYTES])
        return self._peers.of_query(query_id) if owner is None and query_id is not None else owner

    def _is_proved(self, subject: bytes, mark: bytes) -> bool:
        return hmac.compare_digest(mark[EPOCH_BYTES:], self._proof(mark[:EPOCH_BYTES], subject))

    def _proof(self, epoch: bytes, subject: bytes) -> bytes:
        return hmac.digest(self._membership.secret, epoch + subject, "sha256")[: MARK_BYTES - EPOCH_BYTES]
