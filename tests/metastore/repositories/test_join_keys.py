from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from metastore.store import Metastore
from selector.join_keys import Bins, ColumnRef, KeyPair
from tests.metastore.examples import MINUTE, NOON
from tests.metastore.same import assert_same

WRITERS = 8


def _pair(a: str, b: str) -> KeyPair:
    return KeyPair.of(ColumnRef(*a.split(".")), ColumnRef(*b.split(".")))


def test_a_pair_is_learned_once(store: Metastore) -> None:
    first, second = _pair("books.id", "sales.book"), _pair("sales.day", "days.day")
    assert store.keys.learn([first], source="declared", at=NOON) == 1
    assert store.keys.learn([_pair("sales.book", "books.id"), second, second], source="history", at=NOON + MINUTE) == 1
    assert store.keys.learn([first, second], source="workload", at=NOON) == 0
    assert store.keys.pairs() == (first, second)
    assert store.keys.forget(first)
    assert not store.keys.forget(first)
    assert store.keys.pairs() == (second,)


def test_a_key_of_several_columns_is_a_key_of_its_own(store: Metastore) -> None:
    columns = [(ColumnRef("sales", name), ColumnRef("books", name)) for name in ("shop", "day")]
    both = KeyPair.together(columns)
    store.keys.learn([KeyPair.of(*pair) for pair in columns] + [both], source="history", at=NOON)
    assert both in store.keys.pairs()
    assert both.left.columns == ("day", "shop")
    assert store.keys.forget(both)
    assert set(store.keys.pairs()) == {KeyPair.of(*pair) for pair in columns}


def test_learning_changes_no_estimate(store: Metastore) -> None:
    version = store.catalog.version()
    store.keys.learn([_pair("a.b", "c.d")], source="history", at=NOON)
    store.keys.put_bins(Bins(np.array([1.0]), "a.b"))
    assert store.catalog.version() == version


def test_pairs_that_are_learned_at_once(store: Metastore) -> None:
    pairs = [_pair("a.b", f"c.d{n}") for n in range(5)]
    with ThreadPoolExecutor(WRITERS) as pool:
        new = list(pool.map(lambda _: store.keys.learn(pairs, source="history", at=NOON), range(WRITERS)))
    assert sum(new) == len(pairs)
    assert store.keys.pairs() == tuple(pairs)


def test_bins_grow_by_a_version_per_group(store: Metastore) -> None:
    numbers = Bins(np.array([-1.5, 0.0, 7.0]), "books.id")
    texts = Bins(np.array([b"", b"\xc3", b"\xff" * 32], dtype="S32"), "books.isbn", version=9)
    assert store.keys.put_bins(numbers).version == 1
    assert store.keys.put_bins(texts).version == 1
    newer = store.keys.put_bins(Bins(np.array([2.0]), "books.id"))
    assert newer.version == 2
    found = store.keys.bins()
    assert list(found) == ["books.id", "books.isbn"]
    assert_same(found["books.id"], newer)
    assert_same(found["books.isbn"], Bins(texts.starts, "books.isbn", 1))


def test_bins_that_are_put_at_once(store: Metastore) -> None:
    with ThreadPoolExecutor(WRITERS) as pool:
        put = pool.map(lambda n: store.keys.put_bins(Bins(np.array([float(n)]), "g")), range(WRITERS))
        by_version = {bins.version: bins for bins in put}
    assert sorted(by_version) == list(range(1, WRITERS + 1))
    assert_same(store.keys.bins()["g"], by_version[WRITERS])


def test_bins_without_a_group(store: Metastore) -> None:
    with pytest.raises(ValueError, match="their group's name"):
        store.keys.put_bins(Bins(np.array([1.0])))
