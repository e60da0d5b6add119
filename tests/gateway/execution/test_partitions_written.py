"""Which partitions INSERT OVERWRITE replaces, by dialect and setting; what settings of a session do."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.files.listing import data_files
from engines.protocol import WriteTarget
from gateway.catalog.lake.lake_tables import LakeTables
from gateway.catalog.locations import Locations, Rules
from gateway.catalog.own_folders import OwnFolders
from gateway.catalog.registration import Registration
from gateway.commands.classification import read_command
from gateway.commands.dml.inserts import InsertInto
from gateway.commands.grammar.reader import Context
from gateway.commands.registry import FAMILIES
from gateway.errors import InvalidSetting, SettingNotObeyed
from gateway.execution.writing import TableWriter
from gateway.security.policy import Policy
from gateway.security.principals import IN_PROCESS
from gateway.statements.partitions import AS_THE_DIALECT_HAS_IT, Overwrite, PartitionSettings
from gateway.statements.session import Session
from gateway.statements.settings import ENGINE, FIXED, OBEYED, POOL, TAGS, Influence, influence_of
from gateway.statements.statement import Run, Statement
from metastore.database.connection import sqlite_url
from metastore.discovery.inspection import inspect
from metastore.store import Metastore
from sql.errors import NotAllowed
from sql.parsing import ParserLimits
from sql.tables import Column, TableSource

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SALES = TableSource(
    "sales",
    "/data/sales",
    "parquet",
    (Column("n", "bigint"), Column("year", "int"), Column("region", "string")),
    partition_columns=("year", "region"),
)
DYNAMIC, STATIC = Overwrite.DYNAMIC, Overwrite.STATIC


def insert(sql: str, dialect: str, partitions: PartitionSettings = AS_THE_DIALECT_HAS_IT) -> InsertInto:
    context = Context(dialect, {"sales": SALES}, ParserLimits(), partitions=partitions)
    write = read_command(sql, context, FAMILIES)
    assert isinstance(write, InsertInto)
    return write


@pytest.mark.parametrize(
    ("dialect", "asked", "mode"),
    [
        ("hive", None, DYNAMIC),
        ("impala", None, DYNAMIC),
        ("spark", None, STATIC),
        ("spark", DYNAMIC, DYNAMIC),
        ("impala", STATIC, STATIC),
        ("hive", STATIC, STATIC),
    ],
)
@pytest.mark.parametrize("partition", ["", "PARTITION (year, region)", "PARTITION (year = 1, region)"])
def test_the_dialect_or_the_session_says_what_is_replaced(
    dialect: str, asked: Overwrite | None, mode: Overwrite, partition: str
) -> None:
    columns = "1, 'n'" if "=" in partition else "1, 2, 'n'"
    found = insert(f"INSERT OVERWRITE sales {partition} SELECT {columns}", dialect, PartitionSettings(asked))
    assert found.overwrite is mode
    assert insert(f"INSERT INTO sales {partition} SELECT {columns}", dialect).overwrite is None


@pytest.mark.parametrize(
    ("dialect", "head", "columns"),
    [
        ("spark", "PARTITION (region, year)", ("n", "year", "region")),  # Spark goes by the table's order
        ("impala", "PARTITION (region, year)", ("n", "region", "year")),  # Impala by the clause's
        ("impala", "(n) PARTITION (year, region)", ("n", "year", "region")),
        ("impala", "(n) PARTITION (year = 1, region)", ("n", "region")),
        ("spark", "PARTITION (year = 1, region) (region, n)", ("region", "n")),
        ("hive", "PARTITION (year, region)", ("n", "year", "region")),
    ],
)
def test_which_column_of_the_query_is_which(dialect: str, head: str, columns: tuple[str, ...]) -> None:
    assert insert(f"INSERT INTO sales {head} SELECT * FROM sales", dialect).columns == columns


@pytest.mark.parametrize(
    ("dialect", "partitions", "head", "message"),
    [
        ("hive", PartitionSettings(), "PARTITION (region, year)", "order: year, region"),
        ("spark", PartitionSettings(), "PARTITION (year = 1)", "each partition column once: year, region"),
        ("impala", PartitionSettings(), "PARTITION (year = 1, year)", "each partition column once"),
        ("hive", PartitionSettings(strict=True), "PARTITION (year, region)", "mode is strict"),
        ("spark", PartitionSettings(strict=True), "", "mode is strict"),
        ("hive", PartitionSettings(dynamic=False), "PARTITION (year = 1, region)", "dynamic.partition is false"),
    ],
)
def test_what_is_refused(dialect: str, partitions: PartitionSettings, head: str, message: str) -> None:
    with pytest.raises(NotAllowed, match=message) as caught:
        insert(f"INSERT OVERWRITE sales {head} SELECT 1", dialect, partitions)
    assert caught.value.position is not None


def test_a_strict_session_may_leave_some_partitions_open() -> None:
    insert("INSERT OVERWRITE sales PARTITION (year = 1, region) SELECT 1, 'n'", "hive", PartitionSettings(strict=True))
    insert("INSERT INTO sales PARTITION (year = 1, region = 'n') SELECT 1", "hive", PartitionSettings(dynamic=False))


BEFORE = {"p=1/q=a": 1, "p=1/q=b": 2, "p=2/q=a": 3, "p=NaN/q=a": 4, "p=2/q=__HIVE_DEFAULT_PARTITION__": 5}


@pytest.mark.parametrize(
    ("mode", "constants", "written", "left"),
    [
        (DYNAMIC, {}, {"p=1.0/q=b": 20}, [1, 3, 4, 5, 20]),  # 1.0 is 1
        (DYNAMIC, {}, {"p=1.0/q=c": 20}, [1, 2, 3, 4, 5, 20]),
        (DYNAMIC, {}, {}, [1, 2, 3, 4, 5]),
        (DYNAMIC, {}, {"p=NaN/q=a": 40, "p=2/q=__HIVE_DEFAULT_PARTITION__": 50}, [1, 2, 3, 40, 50]),
        (DYNAMIC, {"p": "1"}, {"p=1.0/q=b": 20}, [1, 3, 4, 5, 20]),
        (DYNAMIC, {"p": "1"}, {}, [1, 2, 3, 4, 5]),
        (DYNAMIC, {"p": "1", "q": "a"}, {}, [2, 3, 4, 5]),  # who names all of a partition empties it
        (DYNAMIC, {"p": "1", "q": "a"}, {"p=1.0/q=a": 10}, [2, 3, 4, 5, 10]),
        (STATIC, {}, {"p=1.0/q=b": 20}, [20]),
        (STATIC, {}, {}, []),
        (STATIC, {"p": "1"}, {"p=1.0/q=b": 20}, [3, 4, 5, 20]),
        (STATIC, {"p": "NaN"}, {}, [1, 2, 3, 5]),
        (STATIC, {"q": None}, {}, [1, 2, 3, 4]),
    ],
)
def test_what_is_left(
    tmp_path: Path, mode: Overwrite, constants: Mapping[str, str | None], written: Mapping[str, int], left: list[int]
) -> None:
    root = tmp_path / "t"
    for folder, value in BEFORE.items():
        put(root / folder / "old.parquet", value)
    columns = (Column("n", "bigint"), Column("p", "double"), Column("q", "string"))
    with Metastore(sqlite_url(tmp_path / "metastore.db")) as metastore:
        source = metastore.catalog.put(inspect("t", root, columns=columns), at=NOW).source
        query = insert("INSERT INTO sales SELECT 1, 2, 'n'", "spark").query

        def produce(_sql: str, target: WriteTarget) -> pa.Schema:
            Path(target.folder).mkdir()
            for folder, value in written.items():
                put(Path(target.folder) / folder / "new.parquet", value)
            return pa.schema([("n", pa.int64())])

        free = tuple(name for name in ("n", "p", "q") if name not in constants)
        write = InsertInto(source, query, free, constants, mode)
        rules = Rules(own=(tmp_path / "warehouse",))
        registration = Registration(
            metastore, Locations(rules), policy=Policy(), announce=lambda: None, lists=tmp_path / "lists"
        )
        lake = LakeTables(tmp_path / "snapshots", wait_s=10.0)
        folders = OwnFolders(metastore, tmp_path / "warehouse", "", lake.remove)
        writer = TableWriter(metastore, folders, registration, lake)
        writer.write(write, Run(Statement(sql="INSERT")), produce)
    assert sorted(pq.ParquetFile(file.path).read()["n"][0].as_py() for file in data_files(root)) == left


def put(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": pa.array([value], pa.int64())}), path)


# ---------------------------------------------------------------------- settings of a session


def test_what_a_session_says_reaches_its_statements() -> None:
    session = Session(IN_PROCESS, deadline_s=60)
    assert session.statement("SELECT 1").partitions == AS_THE_DIALECT_HAS_IT
    session.set("SPARK.sql.sources.partitionoverwritemode", "DYNAMIC")
    session.set("hive.exec.dynamic.partition.mode", "strict")
    session.set("hive.exec.dynamic.partition", "FALSE")
    assert session.statement("SELECT 1").partitions == PartitionSettings(DYNAMIC, dynamic=False, strict=True)
    overlay = {"spark.sql.sources.partitionOverwriteMode": "static"}
    assert session.statement("SELECT 1", overlay=overlay).partitions.overwrite is STATIC
    session.reset()
    assert session.statement("SELECT 1").partitions == AS_THE_DIALECT_HAS_IT


@pytest.mark.parametrize("option", OBEYED, ids=lambda option: option.name)
def test_an_obeyed_setting_reads_its_default_and_refuses_nonsense(option: object) -> None:
    session = Session(IN_PROCESS, deadline_s=60)
    for each in OBEYED:
        session.set(each.name, each.default)
        if each not in (
            ENGINE,
            POOL,
            TAGS,
        ):  # any name, which may mean nothing here
            with pytest.raises(InvalidSetting):
                session.set(each.name, "nonsense")


@pytest.mark.parametrize("name", FIXED)
def test_what_cannot_be_changed_is_accepted_as_it_is_and_refused_otherwise(name: str) -> None:
    session = Session(IN_PROCESS, deadline_s=60)
    for value in FIXED[name].values:
        session.set(name.upper(), value.upper())
    for each in (session, Session(IN_PROCESS, deadline_s=60, of_hive=True)):
        with pytest.raises(SettingNotObeyed, match="is not obeyed here"):
            each.set(name, "something else")
    with pytest.raises(SettingNotObeyed):
        session.statement("SELECT 1", overlay={name: "something else"})


@pytest.mark.parametrize(
    "setting",
    """
    hive.execution.engine=tez hive.exec.parallel=true hive.vectorized.execution.enabled=false mapreduce.job.queuename=x
    hive.server2.thrift.resultset.default.fetch.size=1000 spark.sql.shuffle.partitions=8 spark.executor.memory=4g
    spark.sql.adaptive.enabled=false spark.sql.autoBroadcastJoinThreshold=-1 tez.queue.name=x MEM_LIMIT=2g MT_DOP=4
    request_pool=default SYNC_DDL=1 EXPLAIN_LEVEL=2 COMPRESSION_CODEC=zstd hive.exec.max.dynamic.partitions=5000
    hive.auto.convert.join=true kyuubi.engine.share.level=USER spark.app.name=dbt impala.resultset.cache.size=10
    spark.hadoop.hive.exec.dynamic.partition.mode=nonstrict spark.sql.execution.arrow.maxRecordsPerBatch=5
    hive.merge.mapfiles=true hive.optimize.sort.dynamic.partition=true hive.stats.autogather=false x=1 my.day=2026
    hive.query.name=q spark.scheduler.pool=fast spark.thriftserver.arrowBasedRowSet.timestampAsString=false
    """.split(),
)
def test_what_clients_send_goes_on_working(setting: str) -> None:
    name, _, value = setting.partition("=")
    assert influence_of(name, value) in (Influence.NONE, Influence.OBEYED, Influence.VARIABLE)
    session = Session(IN_PROCESS, deadline_s=60)
    session.set(name, value)
    assert session.get(name) == value
    assert session.warnings == ()


@pytest.mark.parametrize(
    "name", ["spark.sql.nothing", "hive.nothing", "spark.sql.legacy.sizeOfNull", "hive.exec.nothing", "use:catalog"]
)
def test_what_nobody_knows_is_refused_or_warned_of(name: str) -> None:
    session = Session(IN_PROCESS, deadline_s=60)
    with pytest.raises(SettingNotObeyed):
        session.set(name, "1x")
    assert session.warnings == ()
    driver = Session(IN_PROCESS, deadline_s=60, of_hive=True)
    if "legacy" not in name:
        driver.set(name, "1x")
        assert driver.warnings == (f"SETTING_IGNORED: {name} is not known here; it changes nothing.",)
        assert driver.get(name.upper()) == "1x"
        driver.reset(name)
    assert driver.warnings == ()


def test_a_session_opens_with_what_only_asks_that_less_be_refused() -> None:
    name = "spark.sql.ansi.enabled"
    driver = Session(IN_PROCESS, deadline_s=60, of_hive=True)
    driver.open_with(name, "false")
    assert driver.get(name) == "false"
    assert driver.level_of(name) == "NOT USED"
    (warning,) = driver.warnings
    assert warning.startswith(f"SETTING_IGNORED: {name} = false is not obeyed here.")
    with pytest.raises(SettingNotObeyed):
        driver.set(name, "false")
    driver.set(name, "true")
    assert (driver.level_of(name), driver.warnings) == ("REGULAR", ())
    for refused in ("spark.sql.session.timeZone", "spark.sql.legacy.sizeOfNull", "spark.sql.ansi.enabledd"):
        with pytest.raises(SettingNotObeyed):
            driver.open_with(refused, "sideways")
    with pytest.raises(InvalidSetting):
        driver.open_with(name, "x" * 70_000)
    assert (driver.get(name), driver.warnings) == ("true", ())


def test_impala_has_no_variables_of_the_clients_own() -> None:
    session = Session(IN_PROCESS, deadline_s=60)
    session.set("appx_count_distinkt", "1")
    session.set("fusion.dialect", "impala")
    with pytest.raises(SettingNotObeyed, match="appx_count_distinkt is not known"):
        session.set("appx_count_distinkt", "1")
