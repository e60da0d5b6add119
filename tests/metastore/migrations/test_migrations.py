from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, inspect, text

from metastore.database.connection import NewerSchema, check_migrations, make_engine, migrate, migration_config
from metastore.database.models import Base
from metastore.errors import TablesBusy
from metastore.records import JobRequest, JobState, Mode, QueryState, StatisticsJob, TableProgress
from metastore.store import Metastore
from selector.forecast.history import Expectation
from selector.statistics import Histogram
from tests.metastore.examples import MINUTE, NOON, query
from tests.metastore.same import assert_same

ENDPOINTS, BELOW, UP_TO = [8.0, 23.0, 23.0, 45.5], [0.0, 0.25, 0.25, 0.9], [0.125, 0.75, 0.75, 1.0]
EXPECTED, PEAK, LIMIT = 100 << 20, 70 << 20, 192 << 20


@pytest.fixture
def url(empty_url: str) -> str:
    """Give a database that nobody has migrated."""
    return empty_url


def _migrate(engine: Engine, revision: str, step: Callable[[Config, str], None] = command.upgrade) -> None:
    config = migration_config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        step(config, revision)


def _noon(engine: Engine) -> dict[str, dt.datetime]:
    return {"at": NOON.replace(tzinfo=None) if engine.dialect.name == "sqlite" else NOON}


def _insert_tables(engine: Engine, locations: Mapping[str, str]) -> None:
    statement = text(
        "INSERT INTO catalog_tables (id, name, location, format, options, files, bytes, registered_at) "
        "VALUES (:id, :name, :location, 'csv', '{}', 1, 1, :at)"
    )
    with engine.begin() as connection:
        for table_id, (name, location) in enumerate(locations.items(), 1):
            connection.execute(statement, _noon(engine) | {"id": table_id, "name": name, "location": location})


def _fill_first_schema(engine: Engine) -> None:
    """Write what the first release wrote: a table, two builds of it, and four jobs."""
    at = _noon(engine)
    histogram = {"histogram": json.dumps({"endpoints": ENDPOINTS, "below": BELOW, "up_to": UP_TO})}
    statements = [
        """INSERT INTO catalog_tables (id, name, location, format, options, files, bytes, rows, registered_at,
           statistics_version) VALUES (1, 'books', '/data/books', 'csv', '{}', 2, 100, NULL, :at, 2)""",
        """INSERT INTO catalog_columns (table_id, ordinal, name, data_type, partition)
           VALUES (1, 0, 'price', 'double', FALSE)""",
        """INSERT INTO statistics_builds (table_id, version, rows, bytes, row_group_rows, built_at, source)
           VALUES (1, 1, 9, 90, NULL, :at, 'spark'), (1, 2, 10, 100, 5, :at, 'spark')""",
        """INSERT INTO column_statistics (table_id, version, ordinal, name, data_type, nulls, ndv, minimum, maximum,
           histogram) VALUES (1, 1, 0, 'price', 'double', 0, 1.0, '8.0', '45.5', NULL),
           (1, 2, 0, 'price', 'double', 1, 3.5, '8.0', '45.5', :histogram)""",
        """INSERT INTO statistics_jobs (id, tables, state, tables_done, process_id, created_at, started_at, finished_at,
           error) VALUES ('well', '["books", "sales"]', 'FINISHED', 2, 7, :at, :at, :at, NULL),
           ('badly', '["books", "sales", "days"]', 'FAILED', 2, 7, :at, :at, :at, 'books: gone'),
           ('open', '["books", "sales"]', 'RUNNING', 1, 7, :at, :at, NULL, NULL),
           ('waits', '["sales"]', 'QUEUED', 0, NULL, :at, NULL, NULL, NULL)""",
    ]
    with engine.begin() as connection:
        for statement in statements:
            known = {name: value for name, value in (at | histogram).items() if f":{name}" in statement}
            connection.execute(text(statement), known)


def test_models_and_migrations_agree_after_any_number_of_migrations(engine: Engine) -> None:
    migrate(engine)
    migrate(engine)
    check_migrations(engine)
    _migrate(engine, "base", command.downgrade)
    assert set(inspect(engine).get_table_names()) == {"alembic_version"}
    migrate(engine)
    check_migrations(engine)
    assert set(Base.metadata.tables) <= set(inspect(engine).get_table_names())


def test_statistics_of_the_first_schema_stay_in_force(url: str, engine: Engine) -> None:
    _migrate(engine, "0001")
    _fill_first_schema(engine)
    with Metastore(url) as store:
        found = store.statistics.current("books")
        assert found is not None
        assert (found.version, found.rows, found.bytes, found.row_group_rows, found.built_at) == (2, 10, 100, 5, NOON)
        assert (found.files, found.share, found.notes, found.manual, found.sample, found.keys) == (
            0, 1.0, (), frozenset(), None, {},
        )  # fmt: skip
        price = found.columns["price"]
        assert (price.nulls, price.ndv, price.minimum, price.maximum) == (1, 3.5, 8.0, 45.5)
        assert (price.common, price.manual) == (None, frozenset())
        assert_same(price.histogram, Histogram(*map(np.array, (ENDPOINTS, BELOW, UP_TO))))
    check_migrations(engine)


def test_jobs_of_the_first_schema_are_still_known(url: str, engine: Engine) -> None:
    _migrate(engine, "0001")
    _fill_first_schema(engine)
    with Metastore(url) as store:
        jobs = {job.id: job for job in store.jobs.list()}
        assert {name: [table.state.value for table in job.tables] for name, job in jobs.items()} == {
            "well": ["FINISHED", "FINISHED"],
            "badly": ["FAILED", "FINISHED", "FAILED"],
            "open": ["FINISHED", "QUEUED"],
            "waits": ["QUEUED"],
        }
        assert jobs["badly"].tables[0] == TableProgress("books", JobState.FAILED, error="books: gone")
        running = jobs["open"]
        assert running.request == JobRequest(("books", "sales"), Mode.FULL)
        assert (running.process_id, running.host) == (7, None)
        with pytest.raises(TablesBusy):
            store.jobs.create(StatisticsJob("new", JobRequest(("sales",)), JobState.QUEUED, NOON))
        dead = store.jobs.dead(host="here", alive=lambda _: True, now=NOON + MINUTE, silence_s=30.0)
        assert {job.id for job in dead} == {"open", "waits"}
        for job in dead:
            store.jobs.ended(job.id, at=NOON + MINUTE, error="gone")
        store.jobs.create(StatisticsJob("new", JobRequest(("sales",)), JobState.QUEUED, NOON))


def test_going_back_to_the_first_schema_keeps_what_it_can_hold(engine: Engine) -> None:
    _migrate(engine, "0001")
    _fill_first_schema(engine)
    migrate(engine)
    _migrate(engine, "0001", command.downgrade)
    with engine.connect() as connection:
        stored = connection.scalar(text("SELECT histogram FROM column_statistics WHERE version = 2"))
        jobs = connection.execute(text("SELECT id, tables, tables_done FROM statistics_jobs")).all()
    assert _json(stored) == {"endpoints": ENDPOINTS, "below": BELOW, "up_to": UP_TO}
    assert {row.id: (_json(row.tables), row.tables_done) for row in jobs} == {
        "well": (["books", "sales"], 2),
        "badly": (["books", "sales", "days"], 3),
        "open": (["books", "sales"], 1),
        "waits": (["sales"], 0),
    }


def test_places_that_an_earlier_release_left_open_are_told(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Links are followed once and for all; folders without a record are not deleted with their table."""
    _migrate(engine, "0008")  # which came before it
    (tmp_path / "release-1").mkdir()
    (tmp_path / "current").symlink_to("release-1")
    forgotten = tmp_path / "made-20260131_235959_1a2b3c4d5e"
    places = {"books": "current", "plain": "release-1", "made": forgotten.name, "other": "made-20260131"}
    _insert_tables(engine, {name: str(tmp_path / place) for name, place in places.items()})
    with caplog.at_level("WARNING", "metastore.migrations"):
        migrate(engine)
    told = [record.getMessage() for record in caplog.records if record.name == "metastore.migrations"]
    assert len(told) == 2
    pinned, unrecorded = told
    assert f"{tmp_path / 'current'}, which leads by a link to {tmp_path / 'release-1'}" in pinned
    assert "register the folder again" in pinned
    assert str(forgotten) in unrecorded
    assert "Delete the folder yourself" in unrecorded
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT location FROM catalog_tables WHERE name = 'books'")) == str(
            tmp_path / "release-1"
        )
    caplog.clear()
    migrate(engine)
    assert not caplog.records


def _fill_ninth_schema(engine: Engine) -> None:
    """Write what the release before wrote: three statements, one of which ran out of memory, and a misestimate."""
    at = _noon(engine)
    estimate = {"peak_bytes": EXPECTED, "upper_bytes": 2 * EXPECTED, "confidence": 0.2, "operators": [], "gaps": []}
    decision = {
        "engine": "spark",
        "ranking": ["spark"],
        "reasons": [{"code": "LOW_CONFIDENCE", "text": "The estimate has a confidence of 0.20."}],
        "estimate": estimate,
        "limit_bytes": LIMIT,
        "remedy": {"engine": "duckdb", "limit_bytes": None, "confidence": 0.3, "blocked": []},
        "estimated_for": "duckdb",
        "others": [],
    }
    queries = f"""INSERT INTO queries (id, sql, dialect, "user", requested_engine, state, fingerprint, template,
        expected_bytes, upper_bytes, holder, limit_bytes, decision, submitted_at)
        VALUES (:id, 'SELECT 1', 'spark', 'ann', 'auto', 'FINISHED', :id, 't', {EXPECTED}, {2 * EXPECTED}, 'hash join',
        {LIMIT}, :decision, :at)"""
    attempts = """INSERT INTO attempts (query_id, ordinal, engine, state, started_at, wall_s, failure, peak_bytes)
        VALUES (:id, :ordinal, :engine, :state, :at, 1.5, :failure, :peak)"""
    missed = """INSERT INTO misestimates (fingerprint, engine, statistics_version, limit_bytes, query_id, sql,
        estimated_bytes, peak_bytes, recorded_at)
        VALUES ('missed', 'duckdb', 'books@1', :limit, 'missed', 'SELECT 1', 100, NULL, :at)"""
    tries = [
        ("fast", 1, "duckdb", "FINISHED", None, PEAK),
        ("missed", 1, "duckdb", "FAILED", "MEMORY_EXCEEDED", None),
        ("missed", 2, "spark", "FINISHED", None, None),
        ("dependable", 1, "spark", "FINISHED", None, None),
    ]
    with engine.begin() as connection:
        for name in ("fast", "missed", "dependable"):
            connection.execute(text(queries), at | {"id": name, "decision": json.dumps(decision)})
        for name, ordinal, on, state, failure, peak in tries:
            values = {"id": name, "ordinal": ordinal, "engine": on, "state": state, "failure": failure, "peak": peak}
            connection.execute(text(attempts), at | values)
        connection.execute(text(missed), at | {"limit": LIMIT})


def test_runs_of_the_release_before_still_teach_and_are_still_readable(url: str, engine: Engine) -> None:
    _migrate(engine, "0009")
    _fill_ninth_schema(engine)
    with Metastore(url) as store:
        runs = {(run.subject.fingerprint, run.engine): run for run in store.queries.runs(limit=9)}
        assert set(runs) == {("fast", "duckdb"), ("missed", "duckdb"), ("missed", "spark"), ("dependable", "spark")}
        assert runs["fast", "duckdb"].expected == Expectation(EXPECTED, limit_bytes=LIMIT)
        assert (runs["fast", "duckdb"].measured_bytes, runs["fast", "duckdb"].seconds) == (PEAK, 1.5)
        assert runs["missed", "duckdb"].expected == Expectation(EXPECTED, limit_bytes=LIMIT)
        assert runs["missed", "duckdb"].ran_out
        assert runs["missed", "duckdb"].teaches_memory
        assert runs["missed", "spark"].expected == runs["dependable", "spark"].expected == Expectation()
        read = store.queries.get("missed")
        assert read is not None
        assert [attempt.engine for attempt in read.attempts] == ["duckdb", "spark"]
        assert read.decision is not None
        assert read.decision.reasons[0].text == "The estimate has a confidence of 0.20."
        (known,) = store.misestimates.about("missed")
        assert (known.limit_bytes, known.model_bytes) == (LIMIT, None)
    check_migrations(engine)


def test_going_back_to_the_release_before_keeps_queries_with_their_attempts(engine: Engine) -> None:
    _migrate(engine, "0009")
    _fill_ninth_schema(engine)
    _migrate(engine, "0010")
    _migrate(engine, "0009", command.downgrade)
    with engine.connect() as connection:
        attempts = connection.execute(text("SELECT query_id, ordinal, peak_bytes FROM attempts ORDER BY 1, 2")).all()
        queries = connection.execute(text("SELECT id, expected_bytes FROM queries ORDER BY id")).all()
        missed = connection.scalar(text("SELECT limit_bytes FROM misestimates"))
        decisions = connection.scalars(text("SELECT decision FROM queries WHERE decision IS NOT NULL")).all()
    assert decisions
    assert all('"LOW_CONFIDENCE"' in json.dumps(_json(each)) for each in decisions)
    assert [tuple(row) for row in attempts] == [
        ("dependable", 1, None),
        ("fast", 1, PEAK),
        ("missed", 1, None),
        ("missed", 2, None),
    ]
    assert [tuple(row) for row in queries] == [("dependable", None), ("fast", None), ("missed", None)]
    assert missed == LIMIT


def _json(stored: object) -> object:
    return json.loads(stored) if isinstance(stored, str) else stored


def test_a_url_may_hold_per_cent_signs() -> None:
    url = "postgresql://ann:p%40ss@localhost/fusion"
    assert migration_config(url).get_main_option("sqlalchemy.url") == url


def test_a_table_whose_name_has_a_dot_is_in_the_database_before_it(url: str, engine: Engine) -> None:
    _migrate(engine, "0010")
    _insert_tables(engine, dict.fromkeys(("books", "sales.orders", "sales.old.orders"), "/data"))
    with Metastore(url) as store:
        assert [database.name for database in store.databases.list()] == ["default", "sales"]
        assert [table.name for table in store.catalog.list()] == ["books", "sales.old.orders", "sales.orders"]
    check_migrations(engine)


def _of_newer_release(url: str, oldest: str | None) -> None:
    """Bring a database to the schema of a newer release, which added to it. oldest: revision that can use it."""
    with Metastore(url):
        pass
    engine = make_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        connection.execute(text("ALTER TABLE queries ADD COLUMN added VARCHAR(9)"))
        connection.execute(text("CREATE TABLE added (id INTEGER)"))
        if oldest is not None:
            connection.execute(text("UPDATE schema_support SET oldest = :oldest"), {"oldest": oldest})
    engine.dispose()


def test_a_release_works_on_the_schema_of_the_next_one(url: str) -> None:
    """So that gateways are upgraded one after the other, and an old one may start again meanwhile."""
    _of_newer_release(url, None)
    with Metastore(url) as store:
        store.membership.join("old")
        record = replace(query("q", at=NOON), state=QueryState.QUEUED)
        store.queries.writer.wait(store.queries.writer.open(record))
        assert store.queries.get("q") == record
    engine = make_engine(url)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == "9999"
    engine.dispose()


def test_a_database_that_only_a_newer_release_can_use_is_refused_with_its_revision(url: str) -> None:
    _of_newer_release(url, "9998")
    with pytest.raises(NewerSchema, match="brought it to schema 9999"):
        Metastore(url)
