"""Connections to the metastore's database, and its migrations."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, make_url, select
from sqlalchemy.exc import SQLAlchemyError

from engines.machine.private_files import private_file
from metastore.database.models import SchemaSupportRow

MIGRATIONS = Path(__file__).parents[1] / "migrations"
BUSY_TIMEOUT_MS = 10_000
CHECKPOINT_PAGES = 16_384
"""Of SQLite's write-ahead log, at which whoever writes brings it into the database and waits for the disk. Until then
``checkpoint`` does, which holds up nobody."""


SERVER_LIMITS = {
    "connect_timeout": 2,
    "tcp_user_timeout": 4_000,  # ms: a server that cannot be reached is noticed, instead of waited for
    "keepalives_idle": 3,
    "keepalives_interval": 1,
    "keepalives_count": 3,
}
"""Parameters of libpq for each connection, unless the URL has them."""


def sqlite_url(path: Path) -> str:
    """Return the URL of an SQLite database in a file."""
    return f"sqlite:///{path}"


def sqlite_file(url: str) -> Path | None:
    """Return the file of an SQLite database; None for one in memory, and for others."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
        return None
    return Path(parsed.database)


def _json(value: Any) -> str:
    """Write JSON as every database takes it: a number that is not finite is a text, which is read as that number."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value))


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case list() | tuple():
            return [_finite(item) for item in value]
        case dict():
            return {key: _finite(item) for key, item in value.items()}
    return value


def make_engine(url: str) -> Engine:
    """Open a database. SQLite runs in WAL mode, so that readers and one writer do not wait for each other."""
    if make_url(url).get_backend_name() != "sqlite":
        limits = {name: value for name, value in SERVER_LIMITS.items() if name not in make_url(url).query}
        server = create_engine(url, pool_pre_ping=True, json_serializer=_json, connect_args=limits)
        if server.dialect.driver == "psycopg":
            from metastore.database.patience import be_patient  # with the extra of this database

            be_patient(server)
        return server
    file = sqlite_file(url)
    if file is not None:
        private_file(file)  # its companions, -wal and -shm, get the rights that it has
    engine = create_engine(url, json_serializer=_json)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        cursor = connection.cursor()
        for pragma in (
            "journal_mode=WAL",
            "synchronous=NORMAL",
            "foreign_keys=ON",
            f"busy_timeout={BUSY_TIMEOUT_MS}",
            f"wal_autocheckpoint={CHECKPOINT_PAGES}",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    return engine


def checkpoint(engine: Engine) -> None:
    """Bring what SQLite has in its write-ahead log into the database, as far as nobody reads it; others do it alone."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)")


def migration_config(url: str = "") -> Config:
    """Return Alembic's configuration for this package's migrations."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


class NewerSchema(SQLAlchemyError):
    """The database has the schema of a newer release."""

    def __init__(self, revision: str) -> None:
        super().__init__(
            f"a newer release has brought it to schema {revision}: install that release, or restore a backup"
        )


def require_known_schema(connection: Connection) -> bool:
    """Return whether this release has to migrate a database; not one of a newer release that it can use.

    Raises NewerSchema for one that it cannot use.
    """
    revision = MigrationContext.configure(connection).get_current_revision()
    ours = {step.revision for step in ScriptDirectory.from_config(migration_config()).walk_revisions()}
    if revision is None or revision in ours:
        return True
    if connection.scalar(select(SchemaSupportRow.oldest)) not in ours:
        raise NewerSchema(revision)
    return False


def migrate(engine: Engine) -> None:
    """Bring a database to the newest schema, unless a newer release has done so. Raises NewerSchema."""
    config = migration_config()
    with engine.begin() as connection:
        if require_known_schema(connection):
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def check_migrations(engine: Engine) -> None:
    """Raise if the models and the migrated schema differ."""
    config = migration_config()
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.check(config)
