"""Marks of handles: only members make them, and they lead to the gateway that made them."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from gateway.drivers.flight.forwarding import handle_in, new_handle, new_token
from gateway.drivers.handles import MARK_BYTES, Handles
from gateway.http.forwarding.peers import OtherGateway
from gateway.statements.statement import ID_BYTES

SUBJECT = b"a number of 16 b"
SECRET = b"of all members"


class Member:
    """A member as its handles see it."""

    def __init__(self, epoch: bytes, secret: bytes = SECRET) -> None:
        self.epoch, self.secret = epoch, secret


class Others:
    """The other gateways. asked: epochs that were looked for."""

    def __init__(self, *living: bytes) -> None:
        self._living = living
        self.asked: list[bytes] = []

    def of_epoch(self, epoch: bytes) -> OtherGateway | None:
        self.asked.append(epoch)
        return OtherGateway(epoch.decode()) if epoch in self._living else None

    def of_query(self, query_id: str) -> OtherGateway | None:
        return OtherGateway(query_id)


def handles(epoch: bytes, others: Any = None, secret: bytes = SECRET) -> Handles:
    return Handles(Member(epoch, secret), others)  # type: ignore[arg-type]  # has what it needs


def test_a_mark_leads_to_its_maker() -> None:
    mark = handles(b"one_").mark(SUBJECT)
    assert len(mark) == MARK_BYTES
    other = handles(b"two_", Others(b"one_"))
    assert other.owner(SUBJECT, mark) == OtherGateway("one_")
    assert other.is_orphan(SUBJECT, mark)
    assert handles(b"one_", Others(b"one_")).owner(SUBJECT, mark) is None
    alone = handles(b"two_")
    assert alone.owner(SUBJECT, mark) is None


def test_what_a_gateway_that_is_gone_ran_may_be_at_another_one() -> None:
    mark = handles(b"gone").mark(SUBJECT)
    other = handles(b"two_", Others())
    assert other.owner(SUBJECT, mark) is None
    assert other.owner(SUBJECT, mark, "20260131_235959_1a2b3c4d5e") == OtherGateway("20260131_235959_1a2b3c4d5e")


def test_nobody_is_asked_about_a_mark_that_no_member_made() -> None:
    others = Others(b"one_")
    other = handles(b"two_", others)
    good = handles(b"one_").mark(SUBJECT)
    forged = [
        handles(b"one_", secret=b"another").mark(SUBJECT),
        handles(b"one_").mark(b"another number.."),
        good[:-1],
        good + b"x",
        b"one_" + bytes(MARK_BYTES - 4),
        b"",
    ]
    for mark in forged:
        assert other.owner(SUBJECT, mark, "20260131_235959_1a2b3c4d5e") is None
        assert not other.is_orphan(SUBJECT, mark)
    assert not others.asked


def test_a_token_holds_a_handle() -> None:
    one = handles(b"one_")
    subject = secrets.token_bytes(ID_BYTES)
    assert handle_in(new_token(one, subject)) == new_handle(one, subject)


@pytest.mark.parametrize("text", ["", "x", "!" * 43, "ä" * 43, "A" * 44, "A" * 4_000])
def test_any_other_text_is_no_token(text: str) -> None:
    assert handle_in(text) == b""
