"""Errors of the repositories: writes that conflict with what is stored. None of them needs the database's library."""

from __future__ import annotations


class AlreadyExists(Exception):
    """The name is taken, by a table or a view. Its argument is the name."""


class NoDatabase(LookupError):
    """The database of a new table or view does not exist. Its argument is the database."""


class TableHeld(Exception):
    """The table cannot be renamed while a statistics job works on it. Its argument is the name."""


class TableChanged(LookupError):
    """A table changed since the caller read it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"table {name} was dropped or registered with other columns or files meanwhile: try again")


class DatabaseInUse(Exception):
    """The database cannot be removed while it has tables or views. Its argument is their full names."""


class TablesBusy(Exception):
    """An open job holds tables of a new one."""

    def __init__(self, job_id: str, tables: tuple[str, ...]) -> None:
        super().__init__(f"job {job_id} computes the statistics of {', '.join(tables)} already")
        self.job_id = job_id
        self.tables = tables


class ScheduleExists(Exception):
    """A schedule of this name exists."""


class NothingToAmend(LookupError):
    """A value cannot be set by hand because statistics that it needs are missing."""


class LockLost(Exception):
    """A job publishes a table that it does not hold any more: the job was taken for dead, and ended."""
