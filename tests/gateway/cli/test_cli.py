"""The ``fusion`` command as people type it, over a real DuckDB."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engines.duckdb.adapter import DuckDBSettings
from engines.spark.adapter import SparkSettings
from gateway.server.serve import own_server
from gateway.server.startup import AlreadyServed
from gateway.settings import Settings, load

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

pytestmark = pytest.mark.e2e  # each command is a process of its own

Fusion = Callable[..., subprocess.CompletedProcess[str]]
SQL = "SELECT category, count(*) AS n FROM books WHERE price < 30 GROUP BY category ORDER BY n DESC, category LIMIT 3"


def fusion_of(home: Path) -> Fusion:
    """Return the command for the gateway of a home, or for one of the moment where none serves it."""
    variables = {
        "FUSION_HOME": str(home),
        "FUSION_SPARK__ENABLED": "false",
        "FUSION_DUCKDB__WORKERS": "1",
        "COLUMNS": "160",
    }

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).with_name("fusion")), *arguments],
            env={**os.environ, **variables, **more},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.fixture
def fusion(tmp_path: Path) -> Fusion:
    return fusion_of(tmp_path / "home")


@pytest.fixture(scope="module")
def fusion_of_empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fusion]:
    """Give the command for a gateway that runs, without tables."""
    home = tmp_path_factory.mktemp("empty")
    with own_server(quiet(home)):
        yield fusion_of(home)


def quiet(home: Path) -> Settings:
    """Return settings without Spark, on a free port."""
    settings = load(home)
    return settings.model_copy(
        update={
            "server": settings.server.model_copy(update={"port": 0}),
            "spark": settings.section(SparkSettings).model_copy(update={"enabled": False}),
            "duckdb": settings.section(DuckDBSettings).model_copy(update={"workers": 1}),
        }
    )


def test_from_a_folder_to_an_answer(fusion: Fusion, bookstore: Path, tmp_path: Path) -> None:
    added = fusion("tables", "add", "books", str(bookstore / "books"))
    assert added.returncode == 0, added.stderr
    assert "1,000 rows" in added.stdout
    assert "parquet" in fusion("tables", "list").stdout
    with own_server(quiet(tmp_path / "home")):
        from_a_question_to_an_answer(fusion)


def from_a_question_to_an_answer(fusion: Fusion) -> None:
    answer = fusion("query", SQL, "--format", "json")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["rows"] == [["category 0", 20], ["category 1", 20], ["category 2", 20]]
    assert "FITS" in answer.stderr
    assert fusion("query", SQL, "--format", "csv").stdout.splitlines()[1] == '"category 0",20'
    table = fusion("query", SQL)
    assert "category 0" in table.stdout
    explained = fusion("explain", SQL)
    assert "duckdb" in explained.stdout
    assert "scan of books" in explained.stdout
    assert "would take it" not in explained.stdout  # there is nowhere else to go
    assert "books has no statistics; run: fusion stats compute books" in explained.stdout
    assert "policy expected; expected peak " in explained.stdout
    assert "duckdb: fits " in explained.stdout
    decision = json.loads(fusion("explain", SQL, "--json", "--policy", "safe").stdout)["decision"]
    assert (decision["engine"], decision["policy"]) == ("duckdb", "safe")
    assert [(price["engine"], price["fits"]) for price in decision["prices"]] == [
        ("duckdb", pytest.approx(1.0, abs=0.05))
    ]
    nothing = fusion("stats", "show", "books")
    assert nothing.returncode == 1
    assert "fusion stats compute books" in nothing.stderr
    assert fusion("misestimates", "list").returncode == 0
    assert "Traceback" not in table.stderr + explained.stderr + nothing.stderr


def test_statistics_by_hand_and_keys(fusion: Fusion, bookstore: Path, tmp_path: Path) -> None:
    with own_server(quiet(tmp_path / "home")):
        statistics_by_hand_and_keys(fusion, bookstore, tmp_path)


def statistics_by_hand_and_keys(fusion: Fusion, bookstore: Path, tmp_path: Path) -> None:
    for name in ("books", "transactions"):
        assert fusion("tables", "add", name, str(bookstore / name)).returncode == 0
    by_hand = fusion("query", "ALTER TABLE books SET COLUMN STATS isbn ('numDVs' = '990', 'avgSize' = '14')")
    assert by_hand.returncode == 0, by_hand.stderr
    shown = fusion("stats", "show", "books").stdout
    assert "990" in shown
    assert "average_length, ndv" in " ".join(shown.split())
    assert "1000,1," in fusion("query", "SHOW TABLE STATS books", "--format", "csv").stdout
    assert "has no statistics any more" in fusion("stats", "drop", "books").stdout
    assert fusion("stats", "show", "books").returncode == 1
    workload = tmp_path / "workload.sql"
    workload.write_text(
        "-- how books sell\nSELECT count(*) FROM transactions t JOIN books b ON t.book_id = b.id;\nSELECT (((;\n",
        encoding="utf-8",
    )
    learned = fusion("stats", "keys", "--workload", str(workload))
    assert learned.returncode == 0, learned.stderr
    assert "1 new pairs of 2 statements" in learned.stdout
    assert "transactions.book_id" in learned.stdout
    assert "statement 2: SYNTAX_ERROR" in learned.stderr
    assert fusion("stats", "jobs").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("query", "SELECT * FROM nowhere"), "UNKNOWN_TABLE: There is no table nowhere. (line 1, column 15)"),
        (("query", "DROP TABLE x"), "UNKNOWN_TABLE"),
        (("query", "GRANT SELECT ON x TO bob"), "UNKNOWN_TABLE"),
        (("explain", "SELECT ((("), "SYNTAX_ERROR"),
        (("explain", "SELECT 1", "--policy", "bold"), "fusion.policy is one of expected, safe, paper, not bold"),
        (("tables", "add", "x", "/nowhere/at/all"), "does not exist"),
        (("misestimates", "forget", "none"), "NOT_FOUND"),
        (("stats", "compute", "nowhere"), "UNKNOWN_TABLE"),
        (("stats", "compute"), "no table is registered"),
        (("stats", "compute", "x", "--incremental", "--sample", "5"), "exclude each other"),
        (("stats", "drop", "nowhere"), "UNKNOWN_TABLE"),
        (("stats", "cancel", "none"), "NOT_FOUND"),
        (("query", "COMPUTE STATS"), "SYNTAX_ERROR: Syntax error at the end: a name is expected here. (line 1"),
    ],
)
def test_mistakes_are_told_without_a_traceback(fusion_of_empty: Fusion, arguments: tuple[str, ...], told: str) -> None:
    answer = fusion_of_empty(*arguments)
    assert answer.returncode != 0
    assert told in " ".join(answer.stderr.split())
    assert "Traceback" not in answer.stderr


def test_wrong_settings_are_named(fusion: Fusion) -> None:
    answer = fusion("doctor", FUSION_DUCKDB__WORKERS="many")
    assert answer.returncode == 1
    assert "duckdb.workers" in answer.stderr


def test_doctor_looks_at_what_the_settings_need(fusion: Fusion) -> None:
    free = {"FUSION_SERVER__PORT": "0", "FUSION_HS2__PORT": "0", "FUSION_FLIGHT__PORT": "0"}
    answer = fusion("doctor", **free)
    assert answer.returncode == 0, answer.stdout
    assert "DuckDB" in answer.stdout
    assert "Java" not in answer.stdout
    too_much = fusion("doctor", FUSION_DUCKDB__MEMORY_LIMIT="100TiB", **free)
    assert "missing Memory" in too_much.stdout
    assert too_much.returncode == 1


def test_two_gateways_do_not_share_a_home(fusion: Fusion, tmp_path: Path) -> None:
    settings = quiet(tmp_path / "home")
    with own_server(settings) as url:
        refused = fusion("serve", "--port", "0")
        assert refused.returncode == 1
        assert "another gateway" in refused.stderr
        with pytest.raises(AlreadyServed):
            with own_server(settings):
                pass
        assert fusion("query", "SELECT 1 AS one", "--format", "csv").stdout.splitlines() == ['"one"', "1"]
        assert url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        pytest.param(
            "gateway.cli.main",
            ("duckdb", "fastapi", "httpx", "numpy", "pyarrow", "pydantic", "pyspark", "sqlalchemy", "sqlglot"),
            id="help, for nothing that a command needs",
        ),
        pytest.param(
            "gateway.server.serve, engines.spark.engine, engines.duckdb.engine",
            ("pandas", "pyspark.sql.connect", "deltalake", "pyiceberg"),
            id="a gateway, for no library that only some statements need",
        ),
    ],
)
def test_a_start_waits_for(modules: str, heavy: tuple[str, ...]) -> None:
    script = f"import sys; import {modules}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_gateway_is_drained_and_resumed(fusion_of_empty: Fusion) -> None:
    listed = fusion_of_empty("gateways", "list", "--json")
    (gateway,) = json.loads(listed.stdout)["gateways"]
    assert (gateway["is_leaving"], gateway["answers"], gateway["open_queries"]) == (False, True, 0)
    drained = fusion_of_empty("gateways", "drain", gateway["name"])
    assert "is not ready any more" in drained.stdout, drained.stderr
    assert "leaving" in fusion_of_empty("gateways", "list").stdout
    assert "is ready again" in fusion_of_empty("gateways", "resume", gateway["name"]).stdout
    unknown = fusion_of_empty("gateways", "drain", "nobody")
    assert unknown.returncode != 0 and "fusion gateways list" in unknown.stderr
