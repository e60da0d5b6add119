"""Whatever happens to tables between and beside queries, none is answered with what was there before."""

from __future__ import annotations

import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.statements.caching import CacheUse
from tests.gateway.execution.caching.conftest import House, line, settled

KEYS, VALUES = 4, 10
QUERIES = (
    "SELECT id, value FROM {t} ORDER BY id, value",
    "SELECT count(*), sum(value) FROM {t}",
    "SELECT value FROM {t} WHERE id = 1 ORDER BY value",
    "SELECT a.value FROM {t} a JOIN {u} b ON a.id = b.id ORDER BY a.value",
    "SELECT value FROM {v} ORDER BY value",
)
_NUMBERS = itertools.count()


@dataclass(slots=True)
class Changing:
    """Two tables and a view of their own names, and what can happen to them."""

    house: House
    number: int = field(default_factory=lambda: next(_NUMBERS))
    definitions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in (self.t, self.u):
            self.house.make(name, {1: 1, 2: 2})
        self.replace_view(1)

    @property
    def t(self) -> str:
        return f"t{self.number}"

    @property
    def u(self) -> str:
        return f"u{self.number}"

    @property
    def v(self) -> str:
        return f"v{self.number}"

    def files(self, name: str) -> list[Path]:
        return sorted((self.house.folder / name).glob("*.csv"))

    def append(self, name: str, value: int) -> None:
        self.house.append(name, {value % KEYS: value})

    def overwrite(self, name: str, value: int) -> None:
        """Change a value in its place; the file keeps its size and, as far as that can be told, its time."""
        for file in self.files(name)[:1]:
            before = file.stat()
            with file.open("r+b") as opened:
                opened.write(line(value % KEYS, value).encode())
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    def rename_over(self, name: str, value: int) -> None:
        for file in self.files(name)[-1:]:
            other = self.house.folder / "other"
            other.write_text(line(value % KEYS, value), encoding="utf-8")
            other.replace(file)

    def remove(self, name: str, value: int) -> None:
        for file in self.files(name)[1:][:value]:
            file.unlink()

    def make_anew(self, name: str, value: int) -> None:
        self.house.ask(f"DROP TABLE {name}")
        for file in self.files(name):
            file.unlink()
        self.house.make(name, {value % KEYS: value})

    def replace_view(self, value: int) -> None:
        self.house.ask(f"CREATE OR REPLACE VIEW {self.v} AS SELECT value FROM {self.t} WHERE id <> {value % KEYS}")

    def query(self, text: str) -> CacheUse:
        """Ask with and without the cache."""
        sql = text.format(t=self.t, u=self.u, v=self.v)
        cached, run = self.house.ask(sql), self.house.ask(sql, cache=False)
        assert cached.rows == run.rows, (cached.use, sql)
        return cached.use


CHANGES = ("append", "overwrite", "rename_over", "remove", "make_anew")
STEPS = st.one_of(
    st.tuples(st.just("query"), st.sampled_from(QUERIES), st.just(0)),
    st.tuples(st.just("query"), st.sampled_from(QUERIES), st.just(0)),
    st.tuples(st.sampled_from(CHANGES), st.sampled_from("tu"), st.integers(0, VALUES - 1)),
    st.tuples(st.just("replace_view"), st.just(""), st.integers(0, VALUES - 1)),
    st.tuples(st.just("wait"), st.just(""), st.just(0)),
)


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(STEPS, min_size=4, max_size=16))
def test_every_answer_is_that_of_a_run(house: House, steps: list[tuple[str, str, int]]) -> None:
    changing = Changing(house)
    settled()
    for step, what, value in steps:
        if step == "query":
            changing.query(what)
        elif step == "wait":
            settled()
        elif step == "replace_view":
            changing.replace_view(value)
        else:
            getattr(changing, step)(getattr(changing, what), value)


@pytest.mark.parametrize("step", CHANGES)
@pytest.mark.parametrize("text", QUERIES[:3])
def test_there_are_answers_from_the_cache_among_them(house: House, step: str, text: str) -> None:
    """Between changes all but the first are, so that the test before this one tests something."""
    changing = Changing(house)
    for value in range(3, 9):
        changing.append(changing.t, value)
    for value in range(1, 4):
        settled()
        assert [changing.query(text) for _ in range(2)] == [CacheUse.MISS, CacheUse.HIT]
        getattr(changing, step)(changing.t, value)


ROUNDS = 10
READERS = 4


def test_readers_beside_a_writer_never_see_less_than_was_there_when_they_asked(house: House) -> None:
    """A counter in a file, which another file takes the place of again and again, at any moment of a query's life."""
    changing = Changing(house)
    (file,) = changing.files(changing.t)
    other = house.folder / "next"
    file.write_text(line(1, 0), encoding="utf-8")
    written, ended, uses = [0], threading.Event(), list[CacheUse]()

    def write() -> None:
        for _ in range(ROUNDS):
            for pause_s in (0.0, 0.005, 0.1):
                other.write_text(line(1, written[0] + 1), encoding="utf-8")
                other.replace(file)
                written[0] += 1
                time.sleep(pause_s)
            enough = len(uses) + 3 * READERS
            while len(uses) < enough and not ended.is_set():
                time.sleep(0.005)
        ended.set()

    def read(_: int) -> None:
        while not ended.is_set():
            least = written[0]
            try:
                asked = house.ask(f"SELECT value FROM {changing.t}")
            except AssertionError as failure:
                assert "part-" in str(failure) and "since the statement listed" in str(failure)
                continue
            assert least <= asked.rows[0][0] <= written[0] + 1, asked.use
            uses.append(asked.use)

    with ThreadPoolExecutor(READERS + 1) as threads:
        writing = threads.submit(write)
        try:
            list(threads.map(read, range(READERS)))
        finally:
            ended.set()
        writing.result()
    assert uses.count(CacheUse.HIT) > READERS and uses.count(CacheUse.MISS) > READERS
