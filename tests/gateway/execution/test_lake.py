"""Statements about lake tables: each reads one snapshot, whatever is committed meanwhile and wherever it runs."""

from __future__ import annotations

import datetime as dt
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.types import LongType

from engines.errors import MemoryExceeded
from engines.protocol import EngineKind
from engines.scripted import Script, ScriptedEngine
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server import wiring
from gateway.server.app import create_app
from sql.tables import LAKE_FORMATS, METADATA_TABLES
from tests.engines.toy import ToyEngine
from tests.gateway.conftest import LIMIT, SLOW, serving, settings_for
from tests.lake_tables import catalog_at, delete_by_position

pytestmark = pytest.mark.e2e  # real DuckDB workers

COMMITS_EVERY_S = 0.1
ROUNDS = 30
BATCH = 7  # rows of each commit


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64())})


def ask(client: httpx.Client, sql: str, **fields: Any) -> dict[str, Any]:
    reply: dict[str, Any] = client.post("/v1/queries", json={"sql": sql, **fields}).json()
    return reply


def record(client: httpx.Client, reply: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/v1/queries/{reply['id']}").json()
    return found


def answer(client: httpx.Client, sql: str, **fields: Any) -> list[list[Any]]:
    reply = ask(client, sql, **fields)
    assert reply.get("error") is None, reply
    found: list[list[Any]] = reply["rows"]
    return found


def refusal(client: httpx.Client, sql: str) -> tuple[str, str]:
    error = ask(client, sql)["error"]
    return error["code"], error["message"]


def add(client: httpx.Client, name: str, folder: Path) -> httpx.Response:
    return client.post("/v1/tables", json={"name": name, "location": str(folder)})


def register(client: httpx.Client, name: str, folder: Path) -> None:
    reply = add(client, name, folder)
    assert reply.status_code == 201, reply.text


def test_commits_are_seen_by_the_next_statement(client: httpx.Client, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", rows(0, 3))
    register(client, "seen", tmp_path / "t")
    first = ask(client, "SELECT COUNT(*) FROM seen")
    write_deltalake(tmp_path / "t", rows(3, 2), mode="append")
    second = ask(client, "SELECT COUNT(*) FROM seen")
    assert (first["rows"], second["rows"]) == ([[3]], [[5]])
    assert [record(client, reply)["decision"]["snapshots"] for reply in (first, second)] == [
        {"seen": "0"},
        {"seen": "1"},
    ]


def test_columns_that_came_are_seen_by_the_next_statement(client: httpx.Client, tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "lake").create_table("db.t", rows(0, 1).schema)
    table.append(rows(0, 3))
    register(client, "wider", Path(table.location()))
    assert answer(client, "SELECT * FROM wider ORDER BY id") == [[0], [1], [2]]
    with table.update_schema() as update:
        update.rename_column("id", "number")
    assert answer(client, "SELECT number FROM wider WHERE number > 1") == [[2]]
    assert refusal(client, "SELECT id FROM wider")[0] == "UNKNOWN_COLUMN"


def test_deleted_rows_are_in_no_answer(client: httpx.Client, tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "lake").create_table("db.t", rows(0, 1).schema)
    table.append(rows(0, 10))
    delete_by_position(table, [2, 3])
    register(client, "fewer", Path(table.location()))
    assert answer(client, "SELECT COUNT(*), SUM(id) FROM fewer") == [[8, 40]]
    assert client.get("/v1/tables/fewer").json()["rows"] == 8


def test_a_view_and_an_explanation_read_a_snapshot(client: httpx.Client, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", rows(0, 3))
    register(client, "viewed", tmp_path / "t")
    answer(client, "CREATE VIEW of_viewed AS SELECT id + 1 AS next FROM viewed")
    assert answer(client, "SELECT SUM(next) FROM of_viewed") == [[6]]
    assert any("scan of viewed: 3 rows" in line for (line,) in answer(client, "EXPLAIN SELECT * FROM viewed"))
    assert answer(client, "EXPLAIN FORMATTED SELECT * FROM viewed")


def test_files_that_are_not_read_are_not_in_the_estimate(client: httpx.Client, tmp_path: Path) -> None:
    days = pa.array([day for day in range(40) for _ in range(50)])
    write_deltalake(tmp_path / "t", pa.table({"id": range(2_000), "day": days}), partition_by=["day"])
    register(client, "daily", tmp_path / "t")
    for condition, count in (("day = 7", 50), ("day BETWEEN 3 AND 12", 500), ("id < 99", 99), ("id + 1 > 0", 2_000)):
        plan = [line for (line,) in answer(client, f"EXPLAIN SELECT * FROM daily WHERE {condition}")]
        assert any(f"scan of daily: {count:,} rows" in line for line in plan), "\n".join(plan)


@pytest.mark.parametrize("format", LAKE_FORMATS)
def test_bounds_in_the_log_are_statistics_until_there_are_others(
    client: httpx.Client, tmp_path: Path, format: str
) -> None:
    sales = pa.table({"id": pa.array(range(2_000), pa.int64()), "buyer": pa.array(range(2_000), pa.int64())})
    buyers = pa.table({"id": pa.array(range(500), pa.int64()), "born": pa.array([None] * 500, pa.date32())})
    for name, content in (("sales", sales), ("buyers", buyers)):
        if format == "delta":
            write_deltalake(tmp_path / name, content)
            register(client, f"{format}_{name}", tmp_path / name)
        else:
            table = catalog_at(tmp_path).create_table(f"db.{name}", content.schema)
            table.append(content)
            register(client, f"{format}_{name}", Path(table.location().removeprefix("file://")))
    plan = "\n".join(
        line
        for (line,) in answer(
            client,
            f"EXPLAIN SELECT count(*) FROM {format}_sales s JOIN {format}_buyers b ON s.buyer = b.id WHERE s.id < 800",
        )
    )
    assert f"scan of {format}_sales: 800 rows" in plan, plan
    (joined,) = re.findall(r"hash join: (\d+) rows", plan)
    assert 200 <= int(joined) <= 500, plan  # 500 ids are buyers: a quarter of 800 by chance, 500 in truth
    assert f"{format}_sales has no statistics but the bounds in its log" in plan, plan
    nobody = answer(client, f"EXPLAIN SELECT * FROM {format}_buyers WHERE born > DATE '2000-01-01'")
    assert any(line.endswith(": 0 rows") for (line,) in nobody), nobody


def test_older_snapshots(client: httpx.Client, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", rows(0, 3))
    before = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.05)
    time.sleep(0.1)
    write_deltalake(tmp_path / "t", rows(3, 2), mode="append")
    register(client, "aged", tmp_path / "t")
    for sql in (
        "SELECT COUNT(*) FROM aged VERSION AS OF 0",
        "SELECT COUNT(aged.id) FROM default.aged FOR VERSION AS OF '0'",
        "SELECT COUNT(a.id) FROM aged FOR SYSTEM_VERSION AS OF 0 AS a",
        f"SELECT COUNT(*) FROM aged TIMESTAMP AS OF '{before.isoformat()}'",
        f"SELECT COUNT(*) FROM (SELECT id FROM aged FOR TIMESTAMP AS OF '{before:%Y-%m-%d %H:%M:%S.%f}') AS inner_one",
        "WITH old AS (SELECT * FROM aged VERSION AS OF 0) SELECT COUNT(*) FROM old JOIN aged ON old.id = aged.id",
    ):
        assert answer(client, sql) == [[3]], sql
    both = ask(client, "SELECT COUNT(*) FROM aged a LEFT ANTI JOIN aged VERSION AS OF 0 b ON a.id = b.id")
    assert both["rows"] == [[2]]
    assert sorted(record(client, both)["decision"]["snapshots"].values()) == ["0", "1"]
    answer(client, "CREATE VIEW aged_view AS SELECT id FROM aged VERSION AS OF 0")
    assert answer(client, "SELECT COUNT(*) FROM aged_view") == [[3]]
    assert answer(client, "EXPLAIN SELECT * FROM aged VERSION AS OF 0")


def test_tags_are_told_apart_by_case(client: httpx.Client, tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "lake").create_table("db.t", rows(0, 1).schema)
    for count, tag in ((2, "rel"), (3, "Rel"), (4, "Only 1")):
        table.append(rows(0, count))
        snapshot = table.current_snapshot()
        assert snapshot is not None
        table.manage_snapshots().create_tag(snapshot.snapshot_id, tag).commit()
    register(client, "tagged", Path(table.location()))
    tags = ("rel", "Rel", "Only 1")
    counts = ", ".join(f"(SELECT COUNT(*) FROM tagged VERSION AS OF '{tag}')" for tag in tags)
    assert answer(client, f"SELECT {counts}") == [[2, 5, 9]]
    answer(client, "CREATE VIEW seen_by_tag AS SELECT id FROM tagged VERSION AS OF 'Rel'")
    assert answer(client, "SELECT COUNT(*) FROM seen_by_tag") == [[5]]
    code, message = refusal(client, "SELECT * FROM tagged VERSION AS OF 'only 1'")
    assert code == "TABLE_UNREADABLE"
    assert "Only 1, Rel" in message


def test_columns_that_differ_by_case_alone_are_refused(client: httpx.Client, tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "lake").create_table("db.t", rows(0, 1).schema)
    table.append(rows(0, 3))
    register(client, "doubled", Path(table.location()))
    with table.update_schema() as update:
        update.add_column("ID", LongType())
    for sql in ("SELECT COUNT(*) FROM doubled", "INSERT INTO doubled VALUES (1, 2)"):
        code, message = refusal(client, sql)
        assert (code, "id and ID" in message) == ("TABLE_UNREADABLE", True), (sql, message)


def test_the_history_of_a_table(client: httpx.Client, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", rows(0, 3))
    write_deltalake(tmp_path / "t", rows(3, 2), mode="append")
    register(client, "told", tmp_path / "t")
    history = answer(client, "DESCRIBE HISTORY told")
    assert [(version, operation) for version, _, operation, _ in history] == [("1", "WRITE"), ("0", "WRITE")]
    table = catalog_at(tmp_path / "lake").create_table("db.t", rows(0, 1).schema)
    table.append(rows(0, 3))
    register(client, "told_too", Path(table.location()))
    ((version, _, operation, details),) = answer(client, "DESC HISTORY told_too")
    assert (int(version), operation) == (table.current_snapshot().snapshot_id, "append")  # type: ignore[union-attr]
    assert json.loads(details)["added-records"] == "3"
    assert answer(client, f"SELECT COUNT(*) FROM told_too VERSION AS OF {version}") == [[3]]
    assert refusal(client, "DESCRIBE HISTORY books")[0] == "NOT_ALLOWED"


@pytest.mark.parametrize("name", METADATA_TABLES)
def test_a_table_of_the_metadata(client: httpx.Client, tmp_path: Path, name: str) -> None:
    schema = rows(0, 1).schema
    table = catalog_at(tmp_path / "lake").create_table("db.t", schema)
    register(client, f"of_{name}", Path(table.location()))
    before = ask(client, f"SELECT * FROM of_{name}.{name}")
    catalog_at(tmp_path / "lake").load_table("db.t").append(rows(0, 3))
    reply = ask(client, f"SELECT * FROM default.of_{name}.{name} AS m")
    if name == "partitions":
        assert before["error"]["code"] == "TABLE_UNREADABLE"
    else:
        assert [column["name"] for column in reply["columns"]] == [column["name"] for column in before["columns"]]
    assert bool(reply["rows"]) is (name != "delete_files")
    assert refusal(client, f"SELECT * FROM of_{name}.{name} VERSION AS OF 1")[0] == "NOT_ALLOWED"


def test_tables_of_the_metadata_are_used_as_others(client: httpx.Client, tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "lake").create_table("db.t", rows(0, 1).schema)
    register(client, "meta", Path(table.location()))
    for count in (1, 2, 3):
        table.append(rows(0, count))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert answer(client, "SELECT count(*), sum(record_count) FROM meta.files") == [[3, 6]]
    ((identifier, committed_at, operation),) = answer(
        client,
        "SELECT snapshots.snapshot_id, committed_at, operation FROM meta.snapshots "
        "JOIN meta.history USING (snapshot_id) WHERE is_current_ancestor ORDER BY committed_at DESC LIMIT 1",
    )
    assert (identifier, operation) == (snapshot.snapshot_id, "append")
    assert dt.datetime.fromisoformat(committed_at).timestamp() * 1_000 == snapshot.timestamp_ms
    answer(client, "CREATE VIEW meta_files AS SELECT f.file_path FROM meta.files f")
    assert answer(client, "SELECT count(*) FROM meta_files JOIN meta ON meta.id = 0") == [[9]]
    assert answer(client, f"SELECT count(*) FROM meta VERSION AS OF {identifier}") == [[6]]
    assert refusal(client, "SELECT * FROM meta.nothing")[0] in ("UNKNOWN_TABLE", "UNKNOWN_DATABASE")
    assert refusal(client, "SELECT * FROM books.files")[0] in ("UNKNOWN_TABLE", "UNKNOWN_DATABASE")


def test_columns_of_an_older_snapshot(client: httpx.Client, tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "lake").create_table("db.t", rows(0, 1).schema)
    table.append(rows(0, 3))
    first = table.current_snapshot()
    assert first is not None
    with table.update_schema() as update:
        update.rename_column("id", "number")
    table.append(pa.table({"number": pa.array([3], pa.int64())}))
    register(client, "renamed", Path(table.location()))
    assert answer(client, f"SELECT MAX(id) FROM renamed VERSION AS OF {first.snapshot_id}") == [[2]]
    assert answer(client, "SELECT MAX(number) FROM renamed") == [[3]]


@pytest.mark.parametrize(
    ("sql", "code", "text"),
    [
        ("SELECT * FROM books VERSION AS OF 0", "NOT_ALLOWED", "no older versions"),
        ("SELECT * FROM nowhere VERSION AS OF 0", "UNKNOWN_TABLE", "There is no table nowhere"),
        ("SELECT * FROM old_ones VERSION AS OF 7", "TABLE_UNREADABLE", "version 7 does not exist"),
        ("SELECT * FROM old_ones VERSION AS OF 'x'", "TABLE_UNREADABLE", "is not a version number"),
        ("SELECT * FROM old_ones VERSION AS OF 1 + 1", "", ""),
        ("SELECT * FROM old_ones TIMESTAMP AS OF 'yesterday'", "SYNTAX_ERROR", "is not a timestamp"),
        ("SELECT * FROM old_ones TIMESTAMP AS OF '1999-01-01'", "TABLE_UNREADABLE", "no version yet"),
    ],
)
def test_snapshots_that_are_not_there(client: httpx.Client, tmp_path: Path, sql: str, code: str, text: str) -> None:
    write_deltalake(tmp_path / "t", rows(0, 3))
    register(client, "old_ones", tmp_path / "t")
    found, message = refusal(client, sql)
    assert (found == code or not code, text in message) == (True, True), (found, message)
    answer(client, "DROP TABLE old_ones")


def test_a_cached_answer_is_of_the_same_snapshot(client: httpx.Client, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", rows(0, 3))
    register(client, "cached_lake", tmp_path / "t")
    sql, settings = "SELECT SUM(id) FROM cached_lake", {"fusion.cache": "on"}
    assert answer(client, sql, settings=settings) == answer(client, sql, settings=settings) == [[3]]
    assert record(client, ask(client, sql, settings=settings))["decision"]["reasons"][0]["code"] == "CACHED"
    write_deltalake(tmp_path / "t", rows(3, 1), mode="append")
    assert answer(client, sql, settings=settings) == [[6]]


def test_what_needs_no_rows_needs_no_engine_that_writes(client: httpx.Client, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", rows(0, 3))
    register(client, "emptied", tmp_path / "t")
    assert refusal(client, "INSERT INTO emptied VALUES (1)")[0] == "NO_ENGINE_AVAILABLE"
    answer(client, "ALTER TABLE emptied ADD COLUMNS (extra INT)")
    assert answer(client, "SELECT * FROM emptied ORDER BY id LIMIT 1") == [[0, None]]
    answer(client, "TRUNCATE TABLE emptied")
    assert answer(client, "SELECT COUNT(*) FROM emptied") == [[0]]
    assert DeltaTable(tmp_path / "t").version() == 2


def test_files_are_those_of_the_snapshot(client: httpx.Client, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", rows(0, 3))
    write_deltalake(tmp_path / "t", rows(3, 3), mode="overwrite")
    register(client, "listed", tmp_path / "t")
    ((path, _, _, _),) = answer(client, "SHOW FILES IN listed")
    assert (tmp_path / "t" / path).is_file()


# ---------------------------------------------------------------------- what is broken


@pytest.fixture
def broken(client: httpx.Client, tmp_path: Path) -> Iterator[Path]:
    """Give the folder of a registered Delta table, for a test to break."""
    write_deltalake(tmp_path / "t", rows(0, 3))
    register(client, "broken", tmp_path / "t")
    yield tmp_path / "t"
    answer(client, "DROP TABLE broken")


def test_a_log_that_cannot_be_read(client: httpx.Client, broken: Path) -> None:
    (broken / "_delta_log" / f"{1:020}.json").write_text("{not json", encoding="utf-8")
    code, message = refusal(client, "SELECT * FROM broken")
    assert code == "TABLE_UNREADABLE"
    assert "log" in message
    assert str(broken) not in message


def test_a_log_that_is_gone(client: httpx.Client, broken: Path) -> None:
    for path in (broken / "_delta_log").iterdir():
        path.unlink()
    assert refusal(client, "SELECT * FROM broken")[0] == "TABLE_UNREADABLE"


def test_a_data_file_that_is_gone(client: httpx.Client, broken: Path) -> None:
    next(broken.glob("*.parquet")).unlink()
    assert refusal(client, "SELECT SUM(id) FROM broken")[0] == "TABLE_UNREADABLE"


def test_a_log_that_names_files_of_others(client: httpx.Client, broken: Path, tmp_path: Path) -> None:
    log = broken / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    (added,) = (action["add"] for action in actions if "add" in action)
    write_deltalake(tmp_path / "others", rows(0, 3))
    other = next((tmp_path / "others").glob("*.parquet"))
    for path in (f"../others/{other.name}", other.as_uri()):
        added["path"] = path
        log.write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
        code, message = refusal(client, "SELECT * FROM broken")
        assert (code, "outside the table's folder" in message) == ("TABLE_UNREADABLE", True)


def test_features_that_are_not_supported(client: httpx.Client, broken: Path) -> None:
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["typeWidening"],
        "writerFeatures": ["typeWidening"],
    }
    log = broken / "_delta_log" / f"{1:020}.json"
    log.write_text(json.dumps({"protocol": protocol}), encoding="utf-8")
    code, message = refusal(client, "SELECT * FROM broken")
    assert (code, "typeWidening" in message) == ("TABLE_UNREADABLE", True)


def test_a_manifest_that_is_gone(client: httpx.Client, tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "lake").create_table("db.t", rows(0, 1).schema)
    table.append(rows(0, 3))
    folder = Path(table.location())
    for path in (folder / "metadata").glob("*.avro"):
        path.unlink()
    reply = add(client, "no_manifest", folder)
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "TABLE_UNREADABLE"


def test_metadata_of_two_commits_at_once(client: httpx.Client, tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "lake").create_table("db.t", rows(0, 1).schema)
    folder = Path(table.location()) / "metadata"
    (newest,) = folder.glob("*.metadata.json")
    (folder / f"{newest.name[:5]}-another.metadata.json").write_bytes(newest.read_bytes())
    reply = add(client, "two_heads", folder.parent)
    assert reply.status_code == 400
    assert "only its catalog knows" in reply.json()["error"]["message"]


def test_a_part_of_a_table_is_refused(client: httpx.Client, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": [1], "p": ["a"]}), partition_by=["p"])
    for place in (tmp_path / "t" / "p=a", tmp_path):
        assert add(client, "a_part", place).status_code == 400


# ---------------------------------------------------------------------- failover


def test_a_failover_answers_from_the_same_snapshot(tmp_path: Path) -> None:
    fast = ScriptedEngine("fast", cost_model="tests.engines.toy_cost", formats=frozenset({"delta"}))
    fast.script("growing", Script(before=(MemoryExceeded("full"),)))
    dependable = ToyEngine("slow", EngineKind.DEPENDABLE)
    entries = [EngineEntry(fast, limit_bytes=LIMIT), EngineEntry(dependable, speed=SLOW)]
    gateway = wiring.assemble(settings_for(tmp_path / "home"), EngineRegistry(entries))
    folder = tmp_path / "growing"
    write_deltalake(folder, rows(0, BATCH))
    ended = threading.Event()

    def commit() -> None:
        while not ended.wait(COMMITS_EVERY_S):
            write_deltalake(folder, rows(0, BATCH), mode="append")

    with serving(create_app(gateway)) as client:
        register(client, "growing", folder)
        committing = threading.Thread(target=commit)
        committing.start()
        try:
            for number in range(ROUNDS):
                reply = ask(client, f"SELECT COUNT(*), {number} FROM growing")
                recorded = record(client, reply)
                version = int(recorded["decision"]["snapshots"]["growing"])
                assert reply["rows"] == [[BATCH * (version + 1), number]], reply
                assert [attempt["engine"] for attempt in recorded["attempts"]][-1] == "slow"
        finally:
            ended.set()
            committing.join()
