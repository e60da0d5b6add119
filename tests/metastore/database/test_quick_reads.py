"""Reads on a connection that stays open: exact, and there again after the database was away."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from metastore.store import Metastore
from tests.metastore.examples import NOON, books
from tests.metastore.lost_connection import lose


def test_a_change_is_seen_at_once_whoever_made_it(store: Metastore, url: str) -> None:
    before = store.catalog.version()
    with Metastore(url) as other:
        other.catalog.put(books(), at=NOON)
        assert store.catalog.version() == other.catalog.version() > before


def test_many_threads_share_it(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    version = store.catalog.version()
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda _: store.catalog.version(), range(200))) == {version}


def test_a_connection_that_was_lost_is_opened_again(store: Metastore) -> None:
    version = store.catalog.version()
    lose(store._engine, store.catalog._quick._kept)
    assert store.catalog.version() == version
    assert store.misestimates.about("nothing") == ()
