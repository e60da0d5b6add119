"""Service accounts on every database."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from metastore.members.service_accounts import ServiceAccount
from metastore.store import Metastore

NOW = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
ETL = ServiceAccount("etl", "writer", ["a", "b"], "1" * 64, NOW + dt.timedelta(days=90), NOW, "root")
BI = ServiceAccount("bi", None, [], "2" * 64, NOW, NOW, "root", "3" * 64, NOW)


def test_an_account_is_on_record_once(store: Metastore) -> None:
    accounts = store.service_accounts
    assert accounts.add(ETL)
    assert accounts.add(BI)
    assert not accounts.add(replace(ETL, token="4" * 64))
    assert accounts.list() == (BI, ETL)
    assert (accounts.get("etl"), accounts.get("other")) == (ETL, None)


def test_only_one_of_two_changes_at_once_counts(store: Metastore) -> None:
    accounts = store.service_accounts
    accounts.add(ETL)
    newer = replace(ETL, token="5" * 64, earlier_token=ETL.token, earlier_until=NOW)
    assert accounts.change(newer, token=ETL.token)
    assert not accounts.change(replace(ETL, token="6" * 64), token=ETL.token)
    assert accounts.list() == (newer,)


def test_a_removed_account_is_gone(store: Metastore) -> None:
    accounts = store.service_accounts
    accounts.add(ETL)
    assert accounts.remove("etl")
    assert not accounts.remove("etl")
    assert not accounts.change(ETL, token=ETL.token)
    assert accounts.list() == ()
