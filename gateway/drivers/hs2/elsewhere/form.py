"""Form of a statement's rows, in the free bytes of its handle's number: another gateway needs it to send them."""

from __future__ import annotations

from gateway.drivers.hs2.operations import Identifier
from gateway.drivers.hs2.registry import Hs2Session, Peer
from gateway.statements import statement
from gateway.statements.session import Session
from gateway.statements.settings import NESTED_JSON
from gateway.statements.statement import ID_BYTES, ID_BYTES_USED
from sql.dialects.names import IMPALA

_OF_IMPALA, _NESTED_JSON, _IMPALA_SHELL, _HAS_LOGIN = 1, 2, 4, 8


def number_of(query_id: str, session: Hs2Session) -> bytes:
    """Return the number of a statement's handle: of the query, and the form that its session asks for."""
    flags = (
        _OF_IMPALA * (session.session.dialect == IMPALA)
        | _NESTED_JSON * session.session.nested_json
        | _IMPALA_SHELL * session.is_impala_shell
        | _HAS_LOGIN * (session.peer.user is not None)
    )
    number = statement.number_of(query_id)[:ID_BYTES_USED] + bytes((session.version, flags))
    return number.ljust(ID_BYTES, b"\0")


def has_login(identifier: Identifier) -> bool:
    """Tell whether the client of a statement has logged in over HTTP."""
    return bool(identifier.guid[ID_BYTES_USED + 1] & _HAS_LOGIN)


def session_of(identifier: Identifier, session: Session, peer: Peer) -> Hs2Session:
    """Return a session that only has the form of a handle, as its own is with a gateway that is gone."""
    version, flags = identifier.guid[ID_BYTES_USED], identifier.guid[ID_BYTES_USED + 1]
    if flags & _OF_IMPALA:
        session.presume_dialect(IMPALA)
    if flags & _NESTED_JSON:
        session.set(NESTED_JSON.name, "true")
    return Hs2Session(
        session=session,
        key=identifier.guid,
        identifier=identifier,
        peer=peer,
        version=version,
        is_counted=False,
        is_impala_shell=bool(flags & _IMPALA_SHELL),
    )
