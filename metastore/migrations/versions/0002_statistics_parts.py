"""Statistics in blobs, with samples, common values and keys; parts to merge; jobs with progress and locks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import sqlalchemy as sa
from alembic import op

from metastore.database.encoding import histogram_blob, histogram_of
from selector.statistics import Histogram

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True)
COLUMN_PLACE = ("table_id", "version", "ordinal")
ENDED = ("FINISHED", "FAILED")

columns = sa.table(
    "column_statistics",
    *(sa.column(name, sa.Integer) for name in COLUMN_PLACE),
    sa.column("histogram", JSON),
    sa.column("histogram_blob", sa.LargeBinary),
)
jobs = sa.table(
    "statistics_jobs",
    sa.column("id", sa.String),
    sa.column("tables", JSON),
    sa.column("state", sa.String),
    sa.column("tables_done", sa.Integer),
    sa.column("error", sa.Text),
    sa.column("created_at", sa.DateTime(timezone=True)),
)
job_tables = sa.table(
    "statistics_job_tables",
    sa.column("job_id", sa.String),
    sa.column("ordinal", sa.Integer),
    sa.column("table", sa.String),
    sa.column("state", sa.String),
    sa.column("files_done", sa.Integer),
    sa.column("files_all", sa.Integer),
    sa.column("error", sa.Text),
)
locks = sa.table("statistics_locks", sa.column("table", sa.String), sa.column("job_id", sa.String))


def upgrade() -> None:
    _make_tables()
    with op.batch_alter_table("statistics_builds", schema=None) as batch_op:
        batch_op.add_column(sa.Column("files", sa.Integer(), nullable=False, server_default="0"))
        batch_op.add_column(sa.Column("share", sa.Float(precision=53), nullable=False, server_default="1.0"))
        batch_op.add_column(sa.Column("notes", sa.JSON(), nullable=False, server_default="[]"))
        batch_op.add_column(sa.Column("manual", sa.JSON(), nullable=False, server_default="[]"))
        batch_op.add_column(sa.Column("sample", sa.LargeBinary(), nullable=True))
    with op.batch_alter_table("column_statistics", schema=None) as batch_op:
        batch_op.add_column(sa.Column("histogram_blob", sa.LargeBinary(), nullable=True))
        batch_op.add_column(sa.Column("common", sa.LargeBinary(), nullable=True))
        batch_op.add_column(sa.Column("manual", sa.JSON(), nullable=False, server_default="[]"))
    with op.batch_alter_table("statistics_jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("mode", sa.String(length=16), nullable=False, server_default="full"))
        batch_op.add_column(sa.Column("columns", sa.JSON(), nullable=False, server_default="[]"))
        batch_op.add_column(sa.Column("share", sa.Float(precision=53), nullable=False, server_default="1.0"))
        batch_op.add_column(sa.Column("partitions", sa.JSON(), nullable=False, server_default="[]"))
        batch_op.add_column(sa.Column("schedule", sa.String(length=255), nullable=True))
        batch_op.add_column(sa.Column("host", sa.String(length=255), nullable=True))
        batch_op.add_column(sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=True))
        batch_op.create_index("ix_statistics_jobs_created_at", ["created_at"], unique=False)
    _histograms_into_blobs()
    job_rows = list(_rows_of_old_jobs())
    with op.batch_alter_table("column_statistics", schema=None) as batch_op:
        batch_op.drop_column("histogram")
        batch_op.alter_column("histogram_blob", new_column_name="histogram")
    with op.batch_alter_table("statistics_jobs", schema=None) as batch_op:
        batch_op.drop_column("tables")
        batch_op.drop_column("tables_done")
    if job_rows:
        op.bulk_insert(job_tables, job_rows)
    _lock_tables_of_open_jobs(job_rows)


def downgrade() -> None:
    with op.batch_alter_table("column_statistics", schema=None) as batch_op:
        batch_op.alter_column("histogram", new_column_name="histogram_blob")
    with op.batch_alter_table("column_statistics", schema=None) as batch_op:
        batch_op.add_column(sa.Column("histogram", JSON, nullable=True))
    _histograms_out_of_blobs()
    with op.batch_alter_table("column_statistics", schema=None) as batch_op:
        for name in ("histogram_blob", "common", "manual"):
            batch_op.drop_column(name)
    with op.batch_alter_table("statistics_jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("tables", sa.JSON(), nullable=False, server_default="[]"))
        batch_op.add_column(sa.Column("tables_done", sa.Integer(), nullable=False, server_default="0"))
    _tables_into_jobs()
    for name in ("statistics_locks", "statistics_job_tables", "statistics_parts"):
        op.drop_table(name)
    for name in ("key_statistics", "key_pairs", "key_groups"):
        op.drop_table(name)
    with op.batch_alter_table("statistics_jobs", schema=None) as batch_op:
        batch_op.drop_index("ix_statistics_jobs_created_at")
        for name in ("mode", "columns", "share", "partitions", "schedule", "host", "heartbeat_at"):
            batch_op.drop_column(name)
    with op.batch_alter_table("statistics_builds", schema=None) as batch_op:
        for name in ("files", "share", "notes", "manual", "sample"):
            batch_op.drop_column(name)


def _make_tables() -> None:
    op.create_table(
        "key_groups",
        sa.Column("name", sa.String(length=512), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("starts", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_key_groups")),
    )
    op.create_table(
        "key_pairs",
        sa.Column("left_table", sa.String(length=255), nullable=False),
        sa.Column("left_column", sa.String(length=255), nullable=False),
        sa.Column("right_table", sa.String(length=255), nullable=False),
        sa.Column("right_column", sa.String(length=255), nullable=False),
        sa.Column("source", sa.String(length=64), nullable=False),
        sa.Column("learned_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("left_table", "left_column", "right_table", "right_column", name=op.f("pk_key_pairs")),
    )
    op.create_table(
        "key_statistics",
        sa.Column("table_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("column", sa.String(length=255), nullable=False),
        sa.Column("counts", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["table_id"],
            ["catalog_tables.id"],
            name=op.f("fk_key_statistics_table_id_catalog_tables"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("table_id", "version", "column", name=op.f("pk_key_statistics")),
    )
    op.create_table(
        "statistics_parts",
        sa.Column("table_id", sa.Integer(), nullable=False),
        sa.Column("folder", sa.String(length=1024), nullable=False),
        sa.Column("marks", sa.LargeBinary(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("share", sa.Float(precision=53), nullable=False),
        sa.Column("built_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("summary", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["table_id"],
            ["catalog_tables.id"],
            name=op.f("fk_statistics_parts_table_id_catalog_tables"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("table_id", "folder", name=op.f("pk_statistics_parts")),
    )
    op.create_table(
        "statistics_job_tables",
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("table", sa.String(length=255), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("files_done", sa.Integer(), nullable=False),
        sa.Column("files_all", sa.Integer(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("columns", sa.Integer(), nullable=True),
        sa.Column("seconds", sa.Float(precision=53), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["statistics_jobs.id"],
            name=op.f("fk_statistics_job_tables_job_id_statistics_jobs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job_id", "ordinal", name=op.f("pk_statistics_job_tables")),
    )
    with op.batch_alter_table("statistics_job_tables", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_statistics_job_tables_table"), ["table"], unique=False)
    op.create_table(
        "statistics_locks",
        sa.Column("table", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["statistics_jobs.id"],
            name=op.f("fk_statistics_locks_job_id_statistics_jobs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("table", name=op.f("pk_statistics_locks")),
    )
    with op.batch_alter_table("statistics_locks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_statistics_locks_job_id"), ["job_id"], unique=False)


def _histograms_into_blobs() -> None:
    connection = op.get_bind()
    stored = connection.execute(sa.select(columns).where(columns.c.histogram.is_not(None))).mappings().all()
    for row in stored:
        values = {name: np.asarray(numbers, dtype=np.float64) for name, numbers in row["histogram"].items()}
        _at_place(row, histogram_blob=histogram_blob(Histogram(**values)))


def _histograms_out_of_blobs() -> None:
    connection = op.get_bind()
    stored = connection.execute(sa.select(columns).where(columns.c.histogram_blob.is_not(None))).mappings().all()
    for row in stored:
        histogram = histogram_of(row["histogram_blob"])
        if histogram.endpoints.dtype.kind == "f" and histogram.below is not None and histogram.up_to is not None:
            arrays = {"endpoints": histogram.endpoints, "below": histogram.below, "up_to": histogram.up_to}
            _at_place(row, histogram={name: values.tolist() for name, values in arrays.items()})


def _at_place(row: sa.RowMapping, **values: object) -> None:
    place = [columns.c[name] == row[name] for name in COLUMN_PLACE]
    op.get_bind().execute(sa.update(columns).where(*place).values(**values))


def _rows_of_old_jobs() -> Iterator[dict[str, object]]:
    """Old jobs counted tables done, well or not; their error began each table's part with its name."""
    for job in op.get_bind().execute(sa.select(jobs).order_by(jobs.c.created_at)).mappings().all():
        for ordinal, table in enumerate(job["tables"]):
            done, failed = ordinal < job["tables_done"], f"{table}: " in (job["error"] or "")
            if job["state"] in ENDED:
                state = "FINISHED" if job["state"] == "FINISHED" or (done and not failed) else "FAILED"
            else:
                state = "FINISHED" if done else "QUEUED"
            yield {
                "job_id": job["id"],
                "ordinal": ordinal,
                "table": table.lower(),
                "state": state,
                "files_done": 0,
                "files_all": 0,
                "error": job["error"] if state == "FAILED" else None,
            }


def _lock_tables_of_open_jobs(job_rows: list[dict[str, object]]) -> None:
    """Let an old job that still runs keep its tables; where two have one, the older job does."""
    connection = op.get_bind()
    still_open = set(connection.scalars(sa.select(jobs.c.id).where(jobs.c.state.not_in(ENDED))))
    holders: dict[object, object] = {}
    for row in job_rows:
        if row["job_id"] in still_open:
            holders.setdefault(row["table"], row["job_id"])
    if holders:
        op.bulk_insert(locks, [{"table": table, "job_id": job_id} for table, job_id in holders.items()])


def _tables_into_jobs() -> None:
    connection = op.get_bind()
    tables: dict[str, list[str]] = {}
    done: dict[str, int] = {}
    for row in connection.execute(sa.select(job_tables).order_by(job_tables.c.job_id, job_tables.c.ordinal)):
        tables.setdefault(row.job_id, []).append(row.table)
        done[row.job_id] = done.get(row.job_id, 0) + (row.state in ENDED)
    for job_id, names in tables.items():
        connection.execute(sa.update(jobs).where(jobs.c.id == job_id).values(tables=names, tables_done=done[job_id]))
