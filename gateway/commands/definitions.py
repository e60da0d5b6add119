"""What the catalog says of tables, views and databases: names, comments and properties, and tables over files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from gateway.catalog.registration import NewTable, Registration
from gateway.errors import (
    PartitionExists,
    TableBusy,
    TableExists,
    TableUnreadable,
    UnknownDatabase,
    UnknownProperty,
    UnknownTable,
)
from gateway.security.policy import Action, Policy
from gateway.security.principals import Principal
from gateway.sql.commands.definitions import (
    AddPartitions,
    Definition,
    OwnedKind,
    RegisterTable,
    Rename,
    SetComment,
    SetProperties,
    UnsetProperties,
)
from gateway.statements.statement import Run
from metastore.discovery.inspection import DEFAULT_PARTITION, InspectionFailed
from metastore.records import Annotations
from metastore.repositories.catalog import AlreadyExists, Annotate, NoDatabase, TableHeld
from metastore.store import Metastore


class Definer:
    """Changes what the catalog says. Thread-safe."""

    def __init__(self, metastore: Metastore, registration: Registration, policy: Policy) -> None:
        self._metastore = metastore
        self._registration = registration
        self._policy = policy

    def run(self, command: Definition, run: Run) -> None:
        """Do what a statement says. Raises SqlError, CommandFailed."""
        principal = run.statement.principal
        match command:
            case RegisterTable():
                self._register(command, principal)
            case Rename():
                self._rename(command, principal)
            case SetComment():
                self._comment(command, principal)
            case SetProperties():
                self._set_properties(command, principal)
            case UnsetProperties():
                self._unset_properties(command, principal)
            case AddPartitions():
                self._add_partitions(command)
            case _:
                assert_never(command)

    def _register(self, command: RegisterTable, principal: Principal) -> None:
        if command.if_not_exists and self._metastore.catalog.get(command.table) is not None:
            return
        wanted = NewTable(
            command.table,
            command.location,
            command.format,
            command.options,
            command.columns,
            partition_columns=command.partition_columns,
            annotations=command.annotations,
        )
        try:
            self._registration.create(wanted, user=principal)
        except InspectionFailed as error:
            raise TableUnreadable(f"{command.table} cannot be made of these files: {error}.") from error
        except OSError as error:
            raise TableUnreadable(f"The folder of {command.table} cannot be made: {error.strerror}.") from error

    def _rename(self, command: Rename, principal: Principal) -> None:
        check = self._policy.owner_check(principal, Action.ALTER, command.kind, command.name)
        names = self._metastore.views if command.kind is OwnedKind.VIEW else self._metastore.catalog
        try:
            found = names.rename(command.name, command.new_name, check=check)
        except AlreadyExists as error:
            raise TableExists(f"There is a table or view {command.new_name} already.") from error
        except NoDatabase as error:
            raise UnknownDatabase(f"The database {error} is gone.") from error
        except TableHeld as error:
            message = (
                f"Statistics of {command.name} are being computed; rename it once that has ended, or cancel the job."
            )
            raise TableBusy(message) from error
        if not found:
            raise UnknownTable(f"The {command.kind} {command.name} is gone.")

    def _comment(self, command: SetComment, principal: Principal) -> None:
        if command.kind is OwnedKind.DATABASE:
            check = self._policy.owner_check(principal, Action.ALTER, command.kind, command.name)
            if not self._metastore.databases.set_comment(command.name, command.comment, check=check):
                raise UnknownDatabase(f"The database {command.name} is gone.")
            return

        def changed(told: Annotations) -> Annotations:
            if command.column is None:
                return replace(told, comment=command.comment)
            columns = {**told.columns, command.column: command.comment}
            return replace(told, columns={name: text for name, text in columns.items() if text})

        self._annotate(command.kind, command.name, changed, principal)

    def _set_properties(self, command: SetProperties, principal: Principal) -> None:
        if command.kind is OwnedKind.DATABASE:
            check = self._policy.owner_check(principal, Action.ALTER, command.kind, command.name)
            if not self._metastore.databases.set_properties(command.name, command.properties, check=check):
                raise UnknownDatabase(f"The database {command.name} is gone.")
            return
        self._annotate(command.kind, command.name, lambda told: _with_properties(told, command.properties), principal)
        if command.rows is not None:
            self._metastore.statistics.amend(command.name, at=dt.datetime.now(dt.UTC), rows=command.rows)

    def _unset_properties(self, command: UnsetProperties, principal: Principal) -> None:
        def changed(told: Annotations) -> Annotations:
            missing = next((key for key in command.keys if key not in told.properties), None)
            if missing is not None and not command.if_exists:
                raise UnknownProperty(f"{command.name} has no property {missing}; add IF EXISTS where that may be so.")
            return replace(told, properties={k: v for k, v in told.properties.items() if k not in command.keys})

        self._annotate(command.kind, command.name, changed, principal)

    def _annotate(self, kind: OwnedKind, name: str, change: Annotate, principal: Principal) -> None:
        check = self._policy.owner_check(principal, Action.ALTER, kind, name)
        relations = self._metastore.views if kind is OwnedKind.VIEW else self._metastore.catalog
        if not relations.annotate(name, change, check=check):
            raise UnknownTable(f"The {kind} {name} is gone.")

    def _add_partitions(self, command: AddPartitions) -> None:
        """Look for the files of partitions: those that are there count, others come with their first rows."""
        table = self._metastore.catalog.get(command.table)
        if table is None:
            raise UnknownTable(f"The table {command.table} is gone.")
        known = {tuple(sorted(each.values.items())) for each in table.partitions}
        for values in command.partitions:
            texts = {name: DEFAULT_PARTITION if text is None else text for name, text in values.items()}
            if tuple(sorted(texts.items())) in known and not command.if_not_exists:
                told = ", ".join(f"{name} = {text}" for name, text in texts.items())
                raise PartitionExists(f"{command.table} has the partition {told} already.")
        try:
            self._registration.refresh(command.table)
        except InspectionFailed as error:
            raise TableUnreadable(str(error).replace(table.source.location, command.table)) from error


def _with_properties(told: Annotations, properties: Mapping[str, str]) -> Annotations:
    return replace(told, properties={**told.properties, **properties})
