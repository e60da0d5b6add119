"""Settings of engines that are elsewhere: what fits together, what an adapter is given, what nobody sees."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from engines.adapter import split_address
from engines.hive.adapter import HiveSettings
from engines.hive.engine import HiveEngine
from engines.protocol import EngineKind
from engines.spark.adapter import SparkSettings
from gateway.server import wiring
from gateway.settings import load

TOKEN = "a/token; of=ours"  # noqa: S105


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
        hive={"enabled": True, "addresses": ["127.0.0.1:1"], "auth": "ldap", "password": "secret", "slots": 3},
    )
    gateway = wiring.build(settings)
    try:
        assert list(gateway.engines) == ["spark", "hive"]
        engine = gateway.engines["hive"].engine
        assert isinstance(engine, HiveEngine)
        assert (engine.kind, engine.dialect, engine.slots) == (EngineKind.DEPENDABLE, "spark", 3)
        assert "127.0.0.1:1 does not answer" in (gateway.engines["hive"].why_down() or "")
        assert "secret" not in repr(settings)
    finally:
        gateway.engines.close()


@pytest.mark.parametrize(
    ("remote", "tls", "token", "address"),
    [
        (None, True, None, None),
        ("sc://spark:15002", False, None, "sc://spark:15002"),
        ("sc://spark:15002", True, None, "sc://spark:15002/;use_ssl=true"),
        ("sc://spark:15002/", False, TOKEN, "sc://spark:15002/;token=a%2Ftoken%3B%20of%3Dours"),
        ("sc://spark/;user_id=ann", True, "a-token", "sc://spark/;user_id=ann;use_ssl=true;token=a-token"),
    ],
)
def test_address_of_a_remote_spark(remote: str | None, tls: bool, token: str | None, address: str | None) -> None:
    settings = SparkSettings.model_validate({"remote": remote, "remote_tls": tls, "remote_token": token})
    assert settings.remote_address == address
    if token is not None:
        assert token not in repr(settings)
