"""Settings of engines that are elsewhere: what fits together, what an adapter is given, what nobody sees."""

from __future__ import annotations

import pytest

from engines.spark.adapter import SparkSettings

TOKEN = "a/token; of=ours"  # noqa: S105


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
