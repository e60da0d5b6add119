"""Settings of Impala: the files in deploy/ that are about it."""

from __future__ import annotations

from pathlib import Path

from engines.duckdb.adapter import DuckDBSettings
from engines.impala.adapter import ImpalaSettings
from engines.spark.adapter import SparkSettings
from tests.gateway.server.deploy_files import DEPLOY, loaded, require_written_out


def test_all_settings_are_written_out(tmp_path: Path) -> None:
    require_written_out("impala", ImpalaSettings, tmp_path)


def test_the_cluster_file_runs_on_impala_and_spark(tmp_path: Path) -> None:
    settings = loaded(DEPLOY / "impala-spark.toml", tmp_path)
    assert settings.server.host == "127.0.0.1"
    assert not settings.section(DuckDBSettings).enabled
    assert settings.section(ImpalaSettings).enabled
    assert settings.section(ImpalaSettings).addresses == [
        ("impala-1.example.com", 21050),
        ("impala-2.example.com", 21050),
    ]
    assert settings.section(SparkSettings).enabled
