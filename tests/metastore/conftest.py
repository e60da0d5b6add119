"""A metastore on every database that is supported: each test below runs once on each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, make_url, text

from metastore.database.connection import make_engine, sqlite_url
from metastore.store import Metastore
from tests.postgresql import PostgreSQL, postgresql

DATABASES = ("sqlite", "postgresql")


@pytest.fixture(scope="module")
def postgresql_server() -> Iterator[PostgreSQL]:
    """Start a real PostgreSQL."""
    with postgresql() as server:
        yield server


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Give an empty database."""
    if request.param == "sqlite":
        yield sqlite_url(tmp_path / "metastore.db")
        return
    database: PostgreSQL = request.getfixturevalue("postgresql_server")
    server_url = make_url(database.url)
    name = f"test_{uuid.uuid4().hex}"
    server = create_engine(server_url, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield server_url.set(database=name).render_as_string(hide_password=False)
    with server.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """Give a connection to an empty database."""
    engine = make_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def store(url: str) -> Iterator[Metastore]:
    """Give a metastore without any content."""
    with Metastore(url) as store:
        yield store
