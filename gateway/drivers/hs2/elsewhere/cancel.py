"""A cancel that another gateway carries out: it has the connection on which the statement runs."""

from __future__ import annotations

from http import HTTPStatus
from http.client import HTTPException

from gateway.drivers.hs2.errors import InvalidHandle
from gateway.drivers.hs2.protocol import thrift
from gateway.drivers.hs2.protocol.messages import OperationRequest, Reply
from gateway.drivers.hs2.protocol.thrift import STOP, Call, MessageKind, Wire
from gateway.drivers.hs2.registry import NO_OPERATION, Peer
from gateway.http.forwarding.peers import OtherGateway, Sender

PATH = "/cliservice"
CONTENT_TYPE = "application/x-thrift"
ANSWER_S = 10.0
_CALL = Call("CancelOperation", 1)


def cancelled_at(owner: OtherGateway, request: OperationRequest, peer: Peer) -> bool:
    """Have another gateway cancel an operation; returns False where that is gone. Raises InvalidHandle."""
    arguments = thrift.field_head(Wire.STRUCT, 1) + thrift.encode(request) + STOP
    call = thrift.head(MessageKind.CALL, _CALL.method, _CALL.sequence) + arguments
    sender = Sender(peer.address, account=peer.user.account if peer.user is not None else None)
    try:
        connection = owner.connected()
        try:
            connection.sock.settimeout(ANSWER_S)
            owner.post(connection, PATH, call, sender, {"content-type": CONTENT_TYPE})
            answer = connection.getresponse()
            reply = answer.read()
        finally:
            connection.close()
    except (OSError, HTTPException):
        return False
    if answer.status != HTTPStatus.OK:
        return False
    if reply != thrift.reply(_CALL, Reply()):
        raise InvalidHandle(NO_OPERATION)
    return True
