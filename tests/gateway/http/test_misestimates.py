"""Misestimates over HTTP, and whether each still counts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace

from gateway.server.app import create_app
from metastore.records import Misestimate
from tests.gateway.conftest import LIMIT, Scripted, serving

MISS = Misestimate("f1", "fast", "books@1", LIMIT, "q1", "SELECT 1", 10, LIMIT, dt.datetime(2026, 11, 1, tzinfo=dt.UTC))


def test_those_of_a_smaller_limit_or_another_engine_are_not_in_force(scripted: Callable[..., Scripted]) -> None:
    house = scripted()
    for miss in (
        MISS,
        replace(MISS, fingerprint="f2", limit_bytes=LIMIT // 2),
        replace(MISS, fingerprint="f3", engine="gone"),
    ):
        house.gateway.metastore.misestimates.remember(miss)
    with serving(create_app(house.gateway)) as client:
        shown = client.get("/v1/misestimates").json()["misestimates"]
    assert {one["fingerprint"]: one["in_force"] for one in shown} == {"f1": True, "f2": False, "f3": False}
