"""Settings of HiveServer2: what does not fit together, and the engine that is built of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from engines.adapter import split_address
from engines.hive.adapter import HiveSettings
from engines.hive.engine import HiveEngine
from engines.protocol import EngineKind
from gateway.server import wiring
from gateway.settings import load
from tests.gateway.server.deploy_files import require_written_out


def test_all_settings_are_written_out(tmp_path: Path) -> None:
    require_written_out("hive", HiveSettings, tmp_path)


def test_settings_that_change_how_texts_are_read_are_refused(tmp_path: Path) -> None:
    for setting in ("spark.sql.variable.substitute", "hive.variable.substitute"):
        with pytest.raises(ValueError, match=f"{setting} must be false"):
            load(tmp_path, hive={"session_settings": {setting: "true"}})
        load(tmp_path, hive={"session_settings": {setting: "FALSE"}})


def test_addresses_have_a_port() -> None:
    assert split_address("hive.example.com:10000") == ("hive.example.com", 10000)
    assert split_address("[::1]:10000") == ("::1", 10000)
    for wrong in ("hive.example.com", ":10000", "hive:port", "hive:0", "hive:65536"):
        with pytest.raises(ValidationError, match="host:port"):
            HiveSettings(addresses=(wrong,))


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(ValidationError, match="metastore"):
        HiveSettings(dialect="hive")
    with pytest.raises(ValidationError, match="password"):
        HiveSettings(enabled=True, auth="ldap")
    with pytest.raises(ValidationError):
        HiveSettings(database="a`b")


def test_hive_is_a_dependable_engine_beside_spark(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        duckdb={"enabled": False},
        spark={"warm_up": False},
        hive={"enabled": True, "addresses": ["127.0.0.1:1"], "auth": "ldap", "password": "pass-of-hive", "slots": 3},
    )
    gateway = wiring.build(settings)
    try:
        assert list(gateway.engines) == ["spark", "hive"]
        engine = gateway.engines["hive"].engine
        assert isinstance(engine, HiveEngine)
        assert (engine.kind, engine.dialect, engine.slots) == (EngineKind.DEPENDABLE, "spark", 3)
        assert "127.0.0.1:1 does not answer" in (gateway.engines["hive"].why_down() or "")
        assert "pass-of-hive" not in repr(settings)
    finally:
        gateway.engines.close()
