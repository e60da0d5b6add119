"""A metastore on every database that is supported: each test below runs once on each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, make_url, text

from metastore.database.connection import make_engine, sqlite_url
from metastore.store import Metastore
from tests.postgresql import PostgreSQL, postgresql

DATABASES = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSQL]:
    """Start a real PostgreSQL."""
    with postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def migrated_database(postgresql_server: PostgreSQL) -> Iterator[str]:
    """Give the name of a database without content that was migrated."""
    with new_database(postgresql_server, "template0") as url:
        Metastore(url).close()
        yield make_url(url).database or ""


@contextmanager
def new_database(server: PostgreSQL, template: str) -> Iterator[str]:
    """Create a database, yield its URL, and drop it."""
    server_url = make_url(server.url)
    name = f"test_{uuid.uuid4().hex}"
    engine = create_engine(server_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
    yield server_url.set(database=name).render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()


@pytest.fixture(params=DATABASES)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Give an empty database."""
    if request.param == "sqlite":
        yield sqlite_url(tmp_path / "metastore.db")
        return
    with new_database(request.getfixturevalue("postgresql_server"), "template0") as url:
        yield url


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Give a database without content; on PostgreSQL it was migrated."""
    if request.param == "sqlite":
        yield sqlite_url(tmp_path / "metastore.db")
        return
    server: PostgreSQL = request.getfixturevalue("postgresql_server")
    with new_database(server, request.getfixturevalue("migrated_database")) as url:
        yield url


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """Give a connection to the database."""
    engine = make_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def store(url: str) -> Iterator[Metastore]:
    """Give a metastore without any content."""
    with Metastore(url) as store:
        yield store
