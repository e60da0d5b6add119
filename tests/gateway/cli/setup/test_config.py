"""``fusion config``: what is set, and what a file would change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gateway.cli.main import app

PASSWORD = "correct-horse"  # noqa: S105 - a password of nobody
FILE = f"""
log_level = "DEBUG"
[duckdb]
memory_limit = "2GiB"
[metastore]
url = "postgresql+psycopg://fusion:{PASSWORD}@db/fusion"
[pools.etl]
slots = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "new.toml"
    file.write_text(FILE, encoding="utf-8")
    return file


def config(*arguments: object, **variables: str) -> Result:
    return CliRunner().invoke(app, ["config", *map(str, arguments)], env=variables)


def test_each_change_is_told_and_no_secret(tmp_path: Path, file: Path) -> None:
    result = config("check", file, "--home", tmp_path)
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert "log_level INFO DEBUG" in lines
    assert "duckdb.memory_limit 1.0GiB 2.0GiB" in lines
    assert "metastore.url - (secret)" in lines
    assert "pools.etl.slots - 3" in lines
    assert PASSWORD not in result.output
    assert not list(tmp_path.glob("fusion.toml"))


def test_another_secret_is_a_change(tmp_path: Path, file: Path) -> None:
    (tmp_path / "fusion.toml").write_text(FILE.replace(PASSWORD, "another"), encoding="utf-8")
    reply = json.loads(config("check", file, "--home", tmp_path, "--json").output)
    assert reply["changes"] == [{"setting": "metastore.url", "now": "(secret)", "then": "(secret)"}]


def test_the_same_settings_change_nothing(tmp_path: Path, file: Path) -> None:
    (tmp_path / "fusion.toml").write_text(FILE, encoding="utf-8")
    assert config("check", file, "--home", tmp_path).output == "The file is right, and changes nothing.\n"


def test_a_variable_that_takes_precedence_is_told(tmp_path: Path, file: Path) -> None:
    result = config("check", file, "--home", tmp_path, FUSION_DUCKDB__MEMORY_LIMIT="3GiB")
    assert "duckdb.memory_limit: the variable FUSION_DUCKDB__MEMORY_LIMIT takes precedence" in result.output
    assert "3.0GiB" not in result.output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[duckdb]\nmemory_limi = 3", "duckdb.memory_limi: unknown setting; did you mean memory_limit?"),
        ("[duckdb", "are no TOML"),
        ("[duckdb]\nworkers = 'many'", "duckdb.workers"),
    ],
)
def test_a_wrong_file_is_refused_by_its_own_name(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text, encoding="utf-8")
    result = config("check", file, "--home", tmp_path)
    assert result.exit_code == 1
    shown = " ".join(result.output.split())
    assert words in shown and "wrong.toml" in shown
    assert "cannot be read" in config("check", tmp_path / "none.toml").output


def test_secrets_among_an_engines_own_settings_are_not_shown(tmp_path: Path) -> None:
    own = '{"spark.authenticate.secret": "s3cret", "spark.ssl.keyPassword": "s3cret", "spark.cores.max": "4"}'
    result = config("show", "--home", tmp_path, FUSION_SPARK__CONFIGURATION=own)
    assert "s3cret" not in result.output
    assert "spark.configuration.spark.ssl.keyPassword = (secret)" in result.output.splitlines()
    assert "spark.configuration.spark.cores.max = 4" in result.output.splitlines()
    (tmp_path / "new.toml").write_text(
        "[spark.configuration]\n'spark.authenticate.secret' = 's3cret'", encoding="utf-8"
    )
    result = config("check", tmp_path / "new.toml", "--home", tmp_path)
    assert "s3cret" not in result.output and "(secret)" in result.output


def test_what_is_set_is_shown_without_defaults_and_secrets(tmp_path: Path, file: Path) -> None:
    file.rename(tmp_path / "fusion.toml")
    result = config("show", "--home", tmp_path, FUSION_SPARK__DRIVER_MEMORY="3GB")
    lines = [line for line in result.output.splitlines() if not line.startswith("parity.")]  # of all tests
    assert lines == [
        "log_level = DEBUG",
        "metastore.url = (secret)",
        "pools.etl.slots = 3",
        "pools.etl.when_full = next",
        "pools.etl.weight = 1.0",
        "duckdb.memory_limit = 2.0GiB",
        "spark.driver_memory = 2.8GiB",
    ]
