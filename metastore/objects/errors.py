"""Why objects cannot be read; the gateway makes errors of its own of them."""

from __future__ import annotations


class ObjectUnreadable(Exception):
    """An object cannot be read; the message is a clause that says why and what to do."""


class StoreUnavailable(Exception):
    """An object store does not answer. Its argument is the location that was asked for."""


class CacheFull(Exception):
    """One statement needs more of object stores than may lie on this machine, beside what others read.

    need_bytes: of the statement's columns.
    limit_bytes: of all copies.
    """

    def __init__(self, need_bytes: int, limit_bytes: int) -> None:
        super().__init__(need_bytes, limit_bytes)
        self.need_bytes = need_bytes
        self.limit_bytes = limit_bytes
