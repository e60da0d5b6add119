"""Statements that are refused with what is done instead, once no family has read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from gateway.commands.grammar.reader import Reader
from gateway.statements.command import OwnedKind
from sql.errors import NotAllowed

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

_MADE_ROOM = "What is used least gives room by itself, in memory and on disk; leave this statement away."
_LOCKS = "Writes to one table take turns by themselves, and readers need no lock; leave this statement away."
_REFUSED = {
    "UNCACHE": _MADE_ROOM,
    "LOCK": _LOCKS,
    "UNLOCK": _LOCKS,
}
_ALTER: Mapping[OwnedKind, str] = {
    OwnedKind.TABLE: (
        "ALTER TABLE is not allowed but for RENAME, ADD COLUMNS, CHANGE, ADD | DROP PARTITION, RECOVER PARTITIONS, "
        "SET TBLPROPERTIES, UNSET TBLPROPERTIES, SET COLUMN STATS and SET OWNER."
    ),
    OwnedKind.VIEW: "ALTER VIEW is not allowed but for AS query, RENAME TO, SET | UNSET TBLPROPERTIES and SET OWNER.",
    OwnedKind.DATABASE: "ALTER DATABASE is not allowed but for SET OWNER and SET DBPROPERTIES.",
}
_SET = "Of a table, TBLPROPERTIES, COLUMN STATS and OWNER can be SET; its files stay as they are."


def parse(reader: Reader) -> None:
    """Raise NotAllowed for a statement that no family has read; return None where nothing is known of it."""
    token = reader.peek()
    if reader.next_word in _REFUSED:
        raise NotAllowed(_REFUSED[reader.next_word], reader.position(token))
    if reader.accept("SHOW"):
        _refuse_show(reader, reader.peek())
    subject = reader.altered()
    if subject is not None:
        is_set = subject.kind is OwnedKind.TABLE and reader.next_word == "SET"
        raise NotAllowed(_SET if is_set else _ALTER[subject.kind], reader.position(reader.peek()))


def _refuse_show(reader: Reader, token: Token) -> NoReturn:
    what = token.text.upper()[:40] or "without a word behind it"
    raise NotAllowed(
        f"SHOW {what} is not known here; SHOW takes DATABASES, TABLES, VIEWS, TABLE EXTENDED, "
        "COLUMNS, CREATE TABLE, PARTITIONS, FILES, TBLPROPERTIES, FUNCTIONS, TABLE STATS, COLUMN STATS, CATALOGS, "
        "CURRENT DATABASE, ROLES and GRANT.",
        reader.position(token),
    )
