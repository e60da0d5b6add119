"""The suites: what is installed, whose tests are run, what tables they expect."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.clients import pyhive_tables, sales_table
from tests.clients.environment import Repository, Sdist, Source

CHECKS = Path(__file__).parent / "checks"


@dataclass(frozen=True, slots=True)
class Suite:
    """One client's tests.

    files: of the source's folder of tests, or of checks/ where there is no source. variables: of the tests' process;
    `{port}` and `{http_port}` in them are the gateway's. data: statements in Hive's dialect that make its tables.
    """

    name: str
    requirements: tuple[str, ...]
    files: tuple[str, ...]
    source: Source | None = None
    arguments: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    test_within_s: int = 120


SUITES = (
    Suite(
        "pyhive",
        ("pyhive==0.7.0", "thrift", "thrift-sasl", "pure-sasl", "sqlalchemy<2.1", "future", "mock", "requests"),
        ("test_hive.py", "test_sqlalchemy_hive.py"),
        Repository("dropbox", "PyHive", "d4ae481675ac5588ba9101596fa26f22ef0e77c4", "pyhive/tests"),
        data=pyhive_tables.STATEMENTS,
    ),
    Suite(
        "impyla",
        ("impyla==0.24.0", "sqlalchemy<2.1", "pandas", "requests"),
        (".",),
        Sdist("impyla==0.24.0", "impala/tests"),
        arguments=("--connect",),
        variables={
            "IMPYLA_TEST_HOST": "localhost",
            "IMPYLA_TEST_PORT": "{port}",
            "IMPYLA_TEST_HIVE_PORT": "{port}",
            "IMPYLA_TEST_HTTP_PORT": "{http_port}",
        },
    ),
    Suite(
        "dbt-spark",
        ("dbt-core>=1.11,<1.12", "dbt-spark[PyHive]==1.11.0"),  # 1.12 of dbt-core fetches a binary from elsewhere
        ("dbt_checks.py",),
        variables={"CLIENTS_DBT": "spark"},
        test_within_s=600,
    ),
    Suite(
        "dbt-spark-1.9",
        ("dbt-core==1.9.11", "dbt-spark[PyHive]==1.9.3"),
        ("dbt_checks.py",),
        variables={"CLIENTS_DBT": "spark"},
        test_within_s=600,
    ),
    Suite(
        "dbt-impala",
        ("dbt-core>=1.11,<1.12", "dbt-impala==1.11.2"),
        ("dbt_checks.py",),
        variables={"CLIENTS_DBT": "impala"},
        test_within_s=600,
    ),
    Suite(
        "superset",
        # Of its own requirements two are missing, and one is too new for it.
        (
            "apache-superset==6.1.0",
            "rich",
            "cachetools",
            "flask-caching<2.4",
            "pyhive",
            "thrift",
            "thrift-sasl",
            "pure-sasl",
            "impyla",
        ),
        ("superset_checks.py",),
        data=sales_table.STATEMENTS,
        test_within_s=300,
    ),
    Suite(
        "ibis",
        ("ibis-framework[impala]==12.0.0", "pandas"),
        ("ibis_checks.py",),
        data=sales_table.STATEMENTS,
    ),
    Suite(
        "sqlalchemy",
        ("sqlalchemy<2.1", "pyhive", "thrift", "thrift-sasl", "pure-sasl", "impyla", "pandas"),
        ("sqlalchemy_checks.py",),
        data=sales_table.STATEMENTS,
    ),
    Suite(
        "jdbc",
        ("jaydebeapi", "jpype1"),
        ("jdbc_checks.py",),
        data=sales_table.STATEMENTS,
    ),
    Suite(
        "impala-shell",
        ("impala-shell==4.6.0",),
        ("impala_shell_checks.py",),
        data=sales_table.STATEMENTS,
    ),
)
