"""Grants of tables, views and databases that are dropped or renamed, in the transaction that does so.

A later relation of the same name is another one: nobody has rights on it by a grant that was made before it.
"""

from __future__ import annotations

from sqlalchemy import delete, update
from sqlalchemy.orm import Session

from metastore.database.models import GrantRow

ALL_IN = ".*"
"""End of a name that stands for all tables and views of a database."""
EVERYTHING = "*"
"""Name that stands for all tables and views."""


def forget_grants(session: Session, name: str) -> None:
    """Take back all grants on a table, a view, or (``hr.*``) a database."""
    session.execute(delete(GrantRow).where(GrantRow.name == name))


def move_grants(session: Session, name: str, new_name: str) -> None:
    """Have grants follow a table or view to its new name."""
    forget_grants(session, new_name)
    session.execute(update(GrantRow).where(GrantRow.name == name).values(name=new_name))
