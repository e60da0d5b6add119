"""A HiveServer2 of Spark's puts nothing into a text before it parses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.errors import EngineUnavailable
from engines.hive.engine import HiveEngine
from tests.attacks.test_substitution import answers_at_last, ask, require_plain_texts
from tests.engines.thrift_server import LOOPBACK, ThriftServer, thrift_server

__all__ = ["thrift_server"]

pytestmark = pytest.mark.spark

SUBSTITUTES = {"spark.sql.variable.substitute": "true"}  # an administrator's setting, which does not go before ours


def test_it_puts_nothing_into_texts(thrift_server: ThriftServer, tmp_path: Path) -> None:
    engine = HiveEngine([(LOOPBACK, thrift_server.ports["sasl"])], settings=SUBSTITUTES)
    require_plain_texts(engine, tmp_path)
    engine.close()


def test_a_server_that_puts_values_into_texts_gets_no_statement(
    thrift_server: ThriftServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may ignore what its sessions are told; here they are not told."""
    monkeypatch.setattr("engines.hive.engine.SPARK_AS_WRITTEN", {})
    engine = HiveEngine([(LOOPBACK, thrift_server.ports["sasl"])], settings=SUBSTITUTES)
    answers_at_last(engine)
    with pytest.raises(EngineUnavailable, match=r"spark\.sql\.variable\.substitute.* to false"):
        ask(engine, "select 1 as a")
    engine.close()
