"""The tables. Only migrations create them; only this package sees them.

It is long because it is one list of all tables.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    TypeDecorator,
    false,
    true,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from sql.tables import DEFAULT_DATABASE

Blob = bytes  # what metastore.database.encoding makes; rows have columns that are named bytes


class UtcDateTime(TypeDecorator[dt.datetime]):
    """An aware UTC time on every database; SQLite keeps no zone of its own."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: dt.datetime | None, dialect: Dialect) -> dt.datetime | None:
        """Store in UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone cannot be stored")
        return value.astimezone(dt.UTC)

    def process_result_value(self, value: dt.datetime | None, dialect: Dialect) -> dt.datetime | None:
        """Read as UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)


class Base(DeclarativeBase):
    """Base of all rows; names every constraint so that migrations can find it."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012
        dt.datetime: UtcDateTime,
        dict[str, Any]: JSON,
        list[Any]: JSON,
        Blob: LargeBinary,
    }


class TableRow(Base):
    """A registered table.

    statistics_version: the active build, None before the first.
    declared: its columns were given at registration.
    identifiers: exact names in an Iceberg catalog, where they are not as ``name``.
    owner: a user of the users file; None: no owner, here as everywhere.
    """

    __tablename__ = "catalog_tables"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(255), unique=True)
    location: Mapped[str] = mapped_column(Text)
    format: Mapped[str] = mapped_column(String(32))
    options: Mapped[dict[str, Any]]
    files: Mapped[int] = mapped_column(Integer)
    bytes: Mapped[int] = mapped_column(BigInteger)
    rows: Mapped[int | None] = mapped_column(BigInteger)
    registered_at: Mapped[dt.datetime]
    statistics_version: Mapped[int | None] = mapped_column(Integer)
    declared: Mapped[bool] = mapped_column(default=False, server_default=false())
    owner: Mapped[str | None] = mapped_column(String(255))
    annotations: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default="{}")
    identifiers: Mapped[list[Any]] = mapped_column(default=list, server_default="[]")

    columns: Mapped[list[ColumnRow]] = relationship(
        cascade="all, delete-orphan", order_by="ColumnRow.ordinal", lazy="selectin"
    )
    partitions: Mapped[list[PartitionRow]] = relationship(
        cascade="all, delete-orphan", order_by="PartitionRow.path", lazy="selectin"
    )


class ColumnRow(Base):
    """A column of a registered table. partition: it lives in the folder names."""

    __tablename__ = "catalog_columns"

    table_id: Mapped[int] = mapped_column(ForeignKey("catalog_tables.id", ondelete="CASCADE"), primary_key=True)
    ordinal: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(String(255))
    data_type: Mapped[str] = mapped_column(Text)
    partition: Mapped[bool] = mapped_column(default=False)


class PartitionRow(Base):
    """A partition's folder. values: column name to text, as in the path."""

    __tablename__ = "catalog_partitions"

    table_id: Mapped[int] = mapped_column(ForeignKey("catalog_tables.id", ondelete="CASCADE"), primary_key=True)
    path: Mapped[str] = mapped_column(String(1024), primary_key=True)
    values: Mapped[dict[str, Any]]
    files: Mapped[int] = mapped_column(Integer)
    bytes: Mapped[int] = mapped_column(BigInteger)


class DatabaseRow(Base):
    """A database: a space of names.

    properties: of DBPROPERTIES, with no meaning here.
    identifiers: exact names of a namespace of an Iceberg catalog, where they are not as ``name``.
    """

    __tablename__ = "catalog_databases"

    name: Mapped[str] = mapped_column(String(128), primary_key=True)
    comment: Mapped[str] = mapped_column(Text)
    properties: Mapped[dict[str, Any]]
    owner: Mapped[str | None] = mapped_column(String(255))
    identifiers: Mapped[list[Any]] = mapped_column(default=list, server_default="[]")


class AddedCatalogRow(Base):
    """An Iceberg catalog that a command has added. It has no secret, only the name of what holds it."""

    __tablename__ = "added_catalogs"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    type: Mapped[str] = mapped_column(String(16))
    uri: Mapped[str] = mapped_column(Text)
    warehouse: Mapped[str] = mapped_column(Text)
    credential_env: Mapped[str] = mapped_column(String(128))
    credential_file: Mapped[str] = mapped_column(String(128))
    properties: Mapped[dict[str, Any]]
    owner: Mapped[str | None] = mapped_column(String(255))


class ManagedFolderRow(Base):
    """A folder that the gateway made for a table of its own, on record before it was made. Only these are deleted."""

    __tablename__ = "managed_folders"

    location: Mapped[str] = mapped_column(Text, primary_key=True)
    query_id: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[dt.datetime]


class TableCommitRow(Base):
    """An INSERT under way. files, replaced: paths below the table's folder; None before the rows are written."""

    __tablename__ = "table_commits"

    query_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    location: Mapped[str] = mapped_column(Text)
    files: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
    replaced: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
    begun_at: Mapped[dt.datetime]


class ViewRow(Base):
    """A view. columns: [name, type] each, as they were when it was made. database: of bare names in its query."""

    __tablename__ = "catalog_views"

    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    sql: Mapped[str] = mapped_column(Text)
    dialect: Mapped[str] = mapped_column(String(32))
    columns: Mapped[list[Any]]
    created_at: Mapped[dt.datetime]
    owner: Mapped[str | None] = mapped_column(String(255))
    database: Mapped[str] = mapped_column(String(128), default=DEFAULT_DATABASE, server_default=DEFAULT_DATABASE)
    annotations: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default="{}")


class CatalogVersionRow(Base):
    """One row, so that caches know when to forget. version: grows with every change of the catalog or of statistics."""

    __tablename__ = "catalog_version"

    id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(BigInteger)


class StatisticsBuildRow(Base):
    """One build of a table's statistics. sample: a blob; manual: names of fields that a person set."""

    __tablename__ = "statistics_builds"

    table_id: Mapped[int] = mapped_column(ForeignKey("catalog_tables.id", ondelete="CASCADE"), primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True)
    rows: Mapped[int] = mapped_column(BigInteger)
    bytes: Mapped[int] = mapped_column(BigInteger)
    files: Mapped[int] = mapped_column(Integer)
    row_group_rows: Mapped[int | None] = mapped_column(BigInteger)
    share: Mapped[float] = mapped_column(Float(53))
    notes: Mapped[list[Any]]
    manual: Mapped[list[Any]]
    sample: Mapped[Blob | None]
    built_at: Mapped[dt.datetime]
    source: Mapped[str] = mapped_column(String(64))


class ColumnStatisticsRow(Base):
    """One column of one build. histogram, common: blobs; minimum and maximum: a number or text."""

    __tablename__ = "column_statistics"

    table_id: Mapped[int] = mapped_column(ForeignKey("catalog_tables.id", ondelete="CASCADE"), primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True)
    ordinal: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(String(255))
    data_type: Mapped[str] = mapped_column(Text)
    nulls: Mapped[int] = mapped_column(BigInteger)
    ndv: Mapped[float] = mapped_column(Float(53))
    minimum: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    maximum: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    average_length: Mapped[float | None] = mapped_column(Float(53))
    maximum_length: Mapped[int | None] = mapped_column(BigInteger)
    histogram: Mapped[Blob | None]
    common: Mapped[Blob | None]
    manual: Mapped[list[Any]]


class KeyStatisticsRow(Base):
    """One key of one build, its columns with commas between: a blob with its bins, its counts and rows chosen by it."""

    __tablename__ = "key_statistics"

    table_id: Mapped[int] = mapped_column(ForeignKey("catalog_tables.id", ondelete="CASCADE"), primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True)
    column: Mapped[str] = mapped_column(String(255), primary_key=True)
    counts: Mapped[Blob]


class StatisticsPartRow(Base):
    """Summary of one partition, or of the whole table, which incremental builds merge. marks: a blob, of its files."""

    __tablename__ = "statistics_parts"

    table_id: Mapped[int] = mapped_column(ForeignKey("catalog_tables.id", ondelete="CASCADE"), primary_key=True)
    folder: Mapped[str] = mapped_column(String(1024), primary_key=True)
    marks: Mapped[Blob]
    rows: Mapped[int] = mapped_column(BigInteger)
    bytes: Mapped[int] = mapped_column(BigInteger)
    share: Mapped[float] = mapped_column(Float(53))
    built_at: Mapped[dt.datetime]
    summary: Mapped[Blob]


class KeyPairRow(Base):
    """Two columns that are joined. source: where that was learned from first."""

    __tablename__ = "key_pairs"

    left_table: Mapped[str] = mapped_column(String(255), primary_key=True)
    left_column: Mapped[str] = mapped_column(String(255), primary_key=True)
    right_table: Mapped[str] = mapped_column(String(255), primary_key=True)
    right_column: Mapped[str] = mapped_column(String(255), primary_key=True)
    source: Mapped[str] = mapped_column(String(64))
    learned_at: Mapped[dt.datetime]


class KeyGroupRow(Base):
    """The newest cut of a key group. starts: a blob."""

    __tablename__ = "key_groups"

    name: Mapped[str] = mapped_column(String(512), primary_key=True)
    version: Mapped[int] = mapped_column(Integer)
    starts: Mapped[Blob]


class StatisticsJobRow(Base):
    """One run of the statistics processor, as it was asked for and how it goes."""

    __tablename__ = "statistics_jobs"
    __table_args__ = (Index("ix_statistics_jobs_created_at", "created_at"),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    mode: Mapped[str] = mapped_column(String(16))
    columns: Mapped[list[Any]]
    share: Mapped[float] = mapped_column(Float(53))
    partitions: Mapped[list[Any]]
    state: Mapped[str] = mapped_column(String(16), index=True)
    schedule: Mapped[str | None] = mapped_column(String(255))
    host: Mapped[str | None] = mapped_column(String(255))
    process_id: Mapped[int | None] = mapped_column(Integer)
    created_at: Mapped[dt.datetime]
    started_at: Mapped[dt.datetime | None]
    heartbeat_at: Mapped[dt.datetime | None]
    finished_at: Mapped[dt.datetime | None]
    error: Mapped[str | None] = mapped_column(Text)
    owner: Mapped[str | None] = mapped_column(String(255))

    tables: Mapped[list[JobTableRow]] = relationship(
        cascade="all, delete-orphan", order_by="JobTableRow.ordinal", lazy="selectin"
    )


class JobTableRow(Base):
    """One table of one job, and how far it is."""

    __tablename__ = "statistics_job_tables"

    job_id: Mapped[str] = mapped_column(ForeignKey("statistics_jobs.id", ondelete="CASCADE"), primary_key=True)
    ordinal: Mapped[int] = mapped_column(Integer, primary_key=True)
    table: Mapped[str] = mapped_column(String(255), index=True)
    state: Mapped[str] = mapped_column(String(16))
    files_done: Mapped[int] = mapped_column(Integer)
    files_all: Mapped[int] = mapped_column(Integer)
    rows: Mapped[int | None] = mapped_column(BigInteger)
    columns: Mapped[int | None] = mapped_column(Integer)
    seconds: Mapped[float | None] = mapped_column(Float(53))
    version: Mapped[int | None] = mapped_column(Integer)
    error: Mapped[str | None] = mapped_column(Text)


class TableLockRow(Base):
    """An open job's hold on a table; there is one at most."""

    __tablename__ = "statistics_locks"

    table: Mapped[str] = mapped_column(String(255), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("statistics_jobs.id", ondelete="CASCADE"), index=True)


class GatewayRow(Base):
    """A gateway that uses this database (``metastore/members``).

    id: name and epoch. name: None of a gateway of release 0.2.
    seen_at: its last sign of life; alive_until: when it may be removed, None: never.
    address: host and port at which other gateways reach it.
    report: what it publishes of its admission.
    """

    __tablename__ = "gateways"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str | None] = mapped_column(String(64))
    address: Mapped[str | None] = mapped_column(String(255))
    seen_at: Mapped[dt.datetime]
    alive_until: Mapped[dt.datetime | None]
    report: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))


class MemberSecretRow(Base):
    """One row: a secret with which gateways prove to each other that they share this database."""

    __tablename__ = "member_secret"

    id: Mapped[int] = mapped_column(primary_key=True)
    secret: Mapped[str] = mapped_column(String(64))


class SchemaSupportRow(Base):
    """One row: the oldest revision whose release can use this schema.

    A migration that adds leaves it; one that removes what an earlier release uses sets it, at least a release later.
    """

    __tablename__ = "schema_support"

    id: Mapped[int] = mapped_column(primary_key=True)
    oldest: Mapped[str] = mapped_column(String(32))


class DriverSessionRow(Base):
    """A session of a driver (``metastore/members/sessions.py``), until ``expires_at``."""

    __tablename__ = "driver_sessions"
    __table_args__ = (Index("ix_driver_sessions_expires_at", "expires_at"),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    user: Mapped[str] = mapped_column(String(255))
    authenticated: Mapped[bool]
    address: Mapped[str] = mapped_column(String(64))
    credential: Mapped[str] = mapped_column(String(64))
    state: Mapped[Any] = mapped_column(JSON(none_as_null=True))
    expires_at: Mapped[dt.datetime]


class LoginRow(Base):
    """The last login of a user whom no users file knows (``metastore/members/logins.py``), until ``expires_at``."""

    __tablename__ = "logins"

    user: Mapped[str] = mapped_column(String(255), primary_key=True)
    source: Mapped[str] = mapped_column(String(16))
    groups: Mapped[Any] = mapped_column(JSON(none_as_null=True))
    credential: Mapped[str] = mapped_column(String(64))
    expires_at: Mapped[dt.datetime]


class GrantRow(Base):
    """One privilege that a statement gave. name: of a table or view, ``hr.*`` or ``*``. column: "" for all of them."""

    __tablename__ = "access_grants"

    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    grantee: Mapped[str] = mapped_column(String(300), primary_key=True)
    privilege: Mapped[str] = mapped_column(String(16), primary_key=True)
    column: Mapped[str] = mapped_column(String(255), primary_key=True)
    granted_by: Mapped[str] = mapped_column(String(255))
    granted_at: Mapped[dt.datetime]


class RoleRow(Base):
    """A role that a statement made."""

    __tablename__ = "access_roles"

    name: Mapped[str] = mapped_column(String(255), primary_key=True)


class RoleMemberRow(Base):
    """A user, a group or a role that has a role; the role may be one of the policy file."""

    __tablename__ = "access_role_members"

    role: Mapped[str] = mapped_column(String(255), primary_key=True)
    member: Mapped[str] = mapped_column(String(300), primary_key=True)


class ServiceAccountRow(Base):
    """A user that is a program (``metastore/members/service_accounts.py``).

    token, earlier_token: SHA-256 of tokens, in hexadecimal digits; the earlier one counts until ``earlier_until``.
    """

    __tablename__ = "service_accounts"

    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    role: Mapped[str | None] = mapped_column(String(16))
    groups: Mapped[Any] = mapped_column(JSON(none_as_null=True))
    token: Mapped[str] = mapped_column(String(64))
    expires_at: Mapped[dt.datetime]
    earlier_token: Mapped[str | None] = mapped_column(String(64))
    earlier_until: Mapped[dt.datetime | None]
    created_at: Mapped[dt.datetime]
    created_by: Mapped[str] = mapped_column(String(255))


class DrainedEngineRow(Base):
    """An engine that takes no new statements. by: name of the user who drains it."""

    __tablename__ = "drained_engines"

    engine: Mapped[str] = mapped_column(String(64), primary_key=True)
    by: Mapped[str] = mapped_column(String(255))
    since: Mapped[dt.datetime]


SUMMARY = (
    *("state", "engine", "pool", "reason", "seconds", "attempt_count", "ran_out", "expected_bytes", "peak_bytes"),
    *("within_bound", "alone_engine", "alone_s", "alone_measured", "rows", "template"),
)
"""Columns that sums and sorted lists need: of the index alone, since rows have decisions, which are long."""


class QueryRow(Base):
    """One statement as it was asked, and how it ended.

    gateway: member that owns it (``metastore/members``).
    request: what another gateway needs to run it again; None: that must not be, or it has ended.
    taken_over: number of times that another gateway has begun it again.

    pool and all after it: its summary (``records.QuerySummary``), by which lists are filtered and sums are made.
    """

    __tablename__ = "queries"
    __table_args__ = (Index("ix_queries_summary", "submitted_at", *SUMMARY, "id"),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    sql: Mapped[str] = mapped_column(Text)
    dialect: Mapped[str] = mapped_column(String(32))
    database: Mapped[str] = mapped_column(String(128), default=DEFAULT_DATABASE, server_default=DEFAULT_DATABASE)
    user: Mapped[str] = mapped_column(String(255))
    authenticated: Mapped[bool] = mapped_column(default=False, server_default=true())  # what is older is nobody else's
    requested_engine: Mapped[str] = mapped_column(String(64))
    gateway: Mapped[str | None] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16), index=True)
    engine: Mapped[str | None] = mapped_column(String(64))
    fingerprint: Mapped[str | None] = mapped_column(String(64), index=True)
    template: Mapped[str | None] = mapped_column(String(64))
    statistics_version: Mapped[str | None] = mapped_column(Text)
    decision: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    request: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    taken_over: Mapped[int | None] = mapped_column(Integer)
    rows: Mapped[int | None] = mapped_column(BigInteger)
    result_bytes: Mapped[int | None] = mapped_column(BigInteger)
    error_code: Mapped[str | None] = mapped_column(String(64))
    error_message: Mapped[str | None] = mapped_column(Text)
    error_position: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    submitted_at: Mapped[dt.datetime]
    finished_at: Mapped[dt.datetime | None]
    pool: Mapped[str | None] = mapped_column(String(64))
    reason: Mapped[str | None] = mapped_column(String(64))
    seconds: Mapped[float | None] = mapped_column(Float(53))
    attempt_count: Mapped[int | None] = mapped_column(Integer)
    ran_out: Mapped[bool | None]
    expected_bytes: Mapped[int | None] = mapped_column(BigInteger)
    peak_bytes: Mapped[int | None] = mapped_column(BigInteger)
    within_bound: Mapped[bool | None]
    alone_engine: Mapped[str | None] = mapped_column(String(64))
    alone_s: Mapped[float | None] = mapped_column(Float(53))
    alone_measured: Mapped[bool | None]

    attempts: Mapped[list[AttemptRow]] = relationship(
        cascade="all, delete-orphan", order_by="AttemptRow.ordinal", lazy="selectin"
    )


class AttemptRow(Base):
    """One try of one query on one engine. actuals: operators with the rows that came out of them.

    expected_bytes, uncertainty (kind, bias, deviation), limit_bytes, expected_s: the models' own estimate, with which
    runs are compared. The decision has them, too, but is long to read.
    lease_bytes, threads: granted by the admission; the limit is the lease, as far as the attempt had one.
    """

    __tablename__ = "attempts"
    __table_args__ = (Index("ix_attempts_engine", "engine", "started_at"),)

    query_id: Mapped[str] = mapped_column(ForeignKey("queries.id", ondelete="CASCADE"), primary_key=True)
    ordinal: Mapped[int] = mapped_column(Integer, primary_key=True)
    engine: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))
    started_at: Mapped[dt.datetime]
    wall_s: Mapped[float | None] = mapped_column(Float(53))
    failure: Mapped[str | None] = mapped_column(String(64))
    message: Mapped[str | None] = mapped_column(Text)
    rows: Mapped[int | None] = mapped_column(BigInteger)
    peak_bytes: Mapped[int | None] = mapped_column(BigInteger)
    waited_s: Mapped[float | None] = mapped_column(Float(53))
    expected_bytes: Mapped[int | None] = mapped_column(BigInteger)
    uncertainty: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    limit_bytes: Mapped[int | None] = mapped_column(BigInteger)
    expected_s: Mapped[float | None] = mapped_column(Float(53))
    lease_bytes: Mapped[int | None] = mapped_column(BigInteger)
    threads: Mapped[int | None] = mapped_column(Integer)
    actuals: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))


class ParityCaseRow(Base):
    """One query whose answers on two engines differ."""

    __tablename__ = "parity_cases"

    query_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    template: Mapped[str] = mapped_column(String(64), index=True)
    sql: Mapped[str] = mapped_column(Text)
    dialect: Mapped[str] = mapped_column(String(32))
    user: Mapped[str] = mapped_column(String(255))
    authenticated: Mapped[bool]
    engine: Mapped[str] = mapped_column(String(64))
    other: Mapped[str] = mapped_column(String(64))
    difference: Mapped[str] = mapped_column(Text)
    rows: Mapped[list[Any]]
    other_rows: Mapped[list[Any]]
    snapshots: Mapped[dict[str, Any]]
    version: Mapped[str] = mapped_column(String(64))
    found_at: Mapped[dt.datetime]
    released_at: Mapped[dt.datetime | None]
    released_by: Mapped[str | None] = mapped_column(String(255))


class ParityCountRow(Base):
    """Number of times that an outcome of the comparison of answers came on one day, in UTC."""

    __tablename__ = "parity_counts"

    day: Mapped[str] = mapped_column(String(8), primary_key=True)
    outcome: Mapped[str] = mapped_column(String(32), primary_key=True)
    count: Mapped[int] = mapped_column(BigInteger)
    seconds: Mapped[float] = mapped_column(Float(53))


class MisestimateRow(Base):
    """One misestimate: this statement, under these statistics and this limit, does not fit into that engine."""

    __tablename__ = "misestimates"

    fingerprint: Mapped[str] = mapped_column(String(64), primary_key=True)
    engine: Mapped[str] = mapped_column(String(64), primary_key=True)
    statistics_version: Mapped[str] = mapped_column(String(512), primary_key=True)
    limit_bytes: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    query_id: Mapped[str] = mapped_column(String(64))
    sql: Mapped[str] = mapped_column(Text)
    estimated_bytes: Mapped[int | None] = mapped_column(BigInteger)
    model_bytes: Mapped[int | None] = mapped_column(BigInteger)
    peak_bytes: Mapped[int | None] = mapped_column(BigInteger)
    recorded_at: Mapped[dt.datetime]


class ScheduleRow(Base):
    """A schedule of statistics jobs or statements. kind: of the trigger, which has its own of the columns below it.

    next_run_at: empty while it is paused or waits for an event.
    """

    __tablename__ = "schedules"

    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    tables: Mapped[list[Any]]
    kind: Mapped[str] = mapped_column(String(16))
    expression: Mapped[str | None] = mapped_column(String(255))
    time_zone: Mapped[str | None] = mapped_column(String(64))
    changed_files: Mapped[float | None] = mapped_column(Float(53))
    days: Mapped[float | None] = mapped_column(Float(53))
    mode: Mapped[str] = mapped_column(String(16))
    share: Mapped[float] = mapped_column(Float(53))
    created_at: Mapped[dt.datetime]
    paused: Mapped[bool]
    next_run_at: Mapped[dt.datetime | None] = mapped_column(index=True)
    awaited: Mapped[list[Any]]
    last_run_at: Mapped[dt.datetime | None]
    running: Mapped[bool]
    last_job_id: Mapped[str | None] = mapped_column(String(64))
    last_error: Mapped[str | None] = mapped_column(Text)
    failures: Mapped[int] = mapped_column(Integer)
    retries: Mapped[int] = mapped_column(Integer)
    owner: Mapped[str | None] = mapped_column(String(255))
    statements: Mapped[list[Any] | None]
    last_query_id: Mapped[str | None] = mapped_column(String(64))
