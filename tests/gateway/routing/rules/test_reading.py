"""Files of rules: what is wrong is told with its place, whatever the bytes are; a reload under load loses nothing."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.rules.positions import positions
from gateway.routing.rules.reading import RulesInvalid, read_rules
from gateway.routing.rules.rules_file import GONE, LOOK_S, SETTLED_S, RulesFile
from gateway.statements.statement import Statement
from metastore.records import QueryState
from tests.gateway.execution.test_coordinator import SQL
from tests.gateway.routing.rules.conftest import ENGINES, Build
from tests.gateway.routing.rules.test_dispatch import rule
from tests.waiting import wait_until

GOOD = rule("a", 'strict = "spark"')
PIECES = (
    *(
        "[[rule]]",
        "[rule.match]",
        "[groups]",
        "name",
        "match",
        "deny",
        "strict",
        "allow",
        "header",
        "estimate",
        "=",
        ".",
    ),
    *('"x"', "'''", '"""', "{", "}", "[", "]", ",", "\n", "#", "1", "true", "2 GiB", "1e999", "1979-05-27", "\\u0000"),
    *("time", '"22:00-06:00"', "zone", '"Europe/Berlin"', "tag", "\r", "\x00", "é", "[" * 50, "9" * 5_000),
)


@pytest.mark.parametrize(
    ("written", "line", "column", "told"),
    [
        ("x = ", 1, 5, "TOML"),
        (GOOD + "\n\nname = [\n", 8, 1, "TOML"),
        ("[[rule]]\nname = 'a'\n", 1, 1, "says nothing"),
        (GOOD + 'pin = "spark"', 1, 1, "says pin and strict"),
        ('[[rule]]\ndeny = "x"', 1, 1, "no name"),
        (GOOD + "\n" + GOOD, 7, 1, "two rules 'a'"),
        (rule("a", 'strict = "sprak"'), 4, 1, "did you mean spark?"),
        (rule("a", 'deny = ""'), 4, 1, "empty"),
        (rule("a", "allow = []"), 4, 1, "the list is empty"),
        (rule("a", 'deny = "x"', 'tabel = "x"'), 3, 11, "did you mean table"),
        (rule("a", 'deny = "x"', 'kind = "selct"'), 3, 11, "did you mean select"),
        (rule("a", 'deny = "x"', 'group = "analysts"'), 3, 11, "no group analysts"),
        (rule("a", 'deny = "x"', 'time = "25:00-26:00"'), 3, 11, "22:00-06:00"),
        (rule("a", 'deny = "x"', 'days = "mon-fry"'), 3, 11, "a day is one of"),
        (rule("a", 'deny = "x"', 'zone = "Mars/Base"'), 3, 11, "no time zone Mars/Base"),
        (rule("a", 'deny = "x"', 'header = { Authorization = "x" }'), 3, 22, "secret"),
        (rule("a", 'deny = "x"', "estimate = { }"), 3, 11, "compared with something"),
        (rule("a", 'deny = "x"', "estimate = { peak_above = -1 }"), 3, 24, "peak_above"),
        (rule("a", 'deny = "x"', "waiting_above = { spark = true }"), 3, 29, "valid number"),
        (rule("a", 'deny = "x"', 'down = "sprak"'), 3, 11, "no engine sprak"),
        ('[groups]\nadmin = "ann"', 2, 1, "is a role"),
        ("[rule]\nname = 'x'", 1, 1, "list"),
        ("a" + ".a" * 200 + " = 1", 1, 1, "dots"),
        ("[[rule]]\nname = 'a'\n# grüße\n[rule.match]\n\n\ntime = '''\n22-23'''\n", 7, 1, "22:00-06:00"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(written: str, line: int, column: int, told: str) -> None:
    with pytest.raises(RulesInvalid) as wrong:
        read_rules(written.encode(), ENGINES)
    found = [(each.position.line, each.position.column) for each in wrong.value.problems if each.position]
    assert (line, column) in found, list(map(str, wrong.value.problems))
    assert told in str(wrong.value)


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(RulesInvalid) as wrong:
        read_rules((rule("a", "x = 1") + rule("b", 'strict = "x"', "y = 2")).encode(), ENGINES)
    assert [each.position.line for each in wrong.value.problems if each.position] == [4, 7]


@settings(max_examples=500)
@given(
    st.one_of(
        st.binary(max_size=400), st.lists(st.sampled_from(PIECES), max_size=40).map(lambda p: " ".join(p).encode())
    )
)
def test_no_bytes_do_more_than_be_refused(content: bytes) -> None:
    try:
        read_rules(content, ENGINES)
    except RulesInvalid as error:
        assert error.problems


@pytest.mark.parametrize(
    "content",
    [
        *(
            b"a = " + b"[" * 100_000,
            b"a = " + b"{b=" * 50_000,
            b"x = " + b"9" * 100_000,
            b'"' * 200_000,
            b"[" * 250_000,
        ),
        *(b"a=1\n" * 60_000, b"#" * (1 << 20), b"\xff" * 1_000, b"a" + b".a" * 100_000),
    ],
    ids=len,
)
def test_large_and_deep_files_are_refused_in_little_time(content: bytes) -> None:
    begun = time.perf_counter()
    with pytest.raises(RulesInvalid):
        read_rules(content, ENGINES)
    assert time.perf_counter() - begun < 20


def test_keys_have_their_places_in_every_form_of_table() -> None:
    text = "a.b = 1\n'c d' = { e = [1, { f = 2 }], g = '}' }\n[[h]]\ni = '''\n]]\n'''\n[h.j]\nk = 1 # l = 2\n"
    text += "[[h]]\nm = 1\n"
    found = {".".join(map(str, path)): (place.line, place.column) for path, place in positions(text).items()}
    assert found["a.b"] == (1, 1)
    assert found["c d.e"] == (2, 11)
    assert found["c d.e.1.f"] == (2, 21)
    assert found["c d.g"] == (2, 31)
    assert (found["h.0.i"], found["h.0.j"], found["h.0.j.k"], found["h.1.m"]) == ((4, 1), (7, 1), (8, 1), (10, 1))


# ---------------------------------------------------------------------- the file


def test_a_file_that_changes_is_read_without_being_told(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    rules = RulesFile(file, ENGINES, required=False)
    assert rules.current().rule == ()
    file.write_text(GOOD)
    wait_until(lambda: len(rules.current().rule) == 1, "a new file is read", LOOK_S + SETTLED_S + 5)
    file.write_text("nonsense")
    wait_until(lambda: bool(rules.state().problems), "a bad file is noticed", LOOK_S + SETTLED_S + 5)
    assert [each.name for each in rules.current().rule] == ["a"]
    file.unlink()
    wait_until(lambda: rules.state().problems[0].message == GONE, "a file that is gone is", LOOK_S + SETTLED_S + 5)
    assert [each.name for each in rules.current().rule] == ["a"]
    file.write_text("")
    wait_until(lambda: rules.current().rule == (), "an empty file says that there are none", LOOK_S + SETTLED_S + 5)
    assert rules.state().problems == ()


def test_a_file_that_is_wrong_or_missing_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RulesInvalid, match="no such file"):
        RulesFile(tmp_path / "rules.toml", ENGINES)
    (tmp_path / "rules.toml").write_text("x")
    with pytest.raises(RulesInvalid, match="TOML"):
        RulesFile(tmp_path / "rules.toml", ENGINES, required=False)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(RulesInvalid, match="no file"):
            RulesFile(path, ENGINES)


def test_a_reload_of_nothing_changes_nothing(tmp_path: Path) -> None:
    assert RulesFile(None, ENGINES).reload().problems == ()
    assert RulesFile(tmp_path / "rules.toml", ENGINES, required=False).reload().problems == ()


def test_reload_under_load_drops_nothing_and_no_statement_meets_half_a_file(ruled: Build) -> None:
    """Files are exchanged while statements run: each statement obeys one whole file, and all of them end."""
    house = ruled(rule("v", 'strict = "spark"'), queue_s=120.0)
    files = [rule("v", 'strict = "spark"'), rule("v", 'strict = "hive"'), "broken = [", rule("v", 'strict = "sail"')]
    ending = threading.Event()

    def exchange() -> None:
        number = 0
        while not ending.wait(0.01):
            house.write(files[number % len(files)])
            number += 1

    writer = threading.Thread(target=exchange)
    writer.start()
    records = []
    try:
        for _ in range(12):
            runs = [house.started(Statement(SQL)) for _ in range(10)]
            records += [run.done.result(timeout=60) for run in runs]
    finally:
        ending.set()
        writer.join()
    assert len(records) == 120
    for record in records:
        assert record.state is QueryState.FINISHED, record.error
        assert record.decision is not None
        assert len(record.decision.ranking) == 1
        assert record.decision.engine in ("spark", "hive", "sail")
        assert {attempt.engine for attempt in record.attempts} == {record.decision.engine}
        assert record.decision.engine in record.decision.reasons[0].text
    assert len({record.engine for record in records}) > 1
    assert house.gateway.router.rules.state().hits["v"] == 120
