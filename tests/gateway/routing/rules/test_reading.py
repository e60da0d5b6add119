"""Files of rules: what is wrong is told with its key, whatever the bytes are; a reload under load loses nothing."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    ("written", "message"),
    [
        ("x = ", "no TOML: Invalid value (at end of document)"),
        (GOOD + "\n\ny = 2 3\n", "(at line 7, column 7)"),
        ("[[rule]]\nname = 'a'\n", "rule 'a': the rule says nothing"),
        (GOOD + 'pin = "spark"', "rule 'a': the rule says pin and strict"),
        ('[[rule]]\ndeny = "x"', "rule 1: the rule has no name"),
        (GOOD + "\n" + GOOD, "two rules 'a'"),
        (rule("a", 'strict = "sprak"'), "rule 'a': strict: there is no engine sprak; did you mean spark?"),
        (rule("a", 'deny = ""'), "rule 'a': deny: a text that is not empty is needed"),
        (rule("a", "allow = []"), "rule 'a': allow: the list is empty"),
        (rule("a", 'deny = "x"', 'tabel = "x"'), "rule 'a': match.tabel: there is no such key; did you mean table"),
        (
            rule("a", 'deny = "x"', 'kind = "selct"'),
            "rule 'a': match.kind: there is no kind selct; did you mean select",
        ),
        (rule("a", 'deny = "x"', 'group = "analysts"'), "rule 'a': match.group: there is no group analysts"),
        (rule("a", 'deny = "x"', 'time = "25:00-26:00"'), "match.time: a time of day is written as 22:00-06:00"),
        (rule("a", 'deny = "x"', 'days = "mon-fry"'), "match.days: a day is one of"),
        (rule("a", 'deny = "x"', 'zone = "Mars/Base"'), "match.zone: there is no time zone Mars/Base"),
        (rule("a", 'deny = "x"', 'header = { Authorization = "x" }'), "match.header.Authorization: the header"),
        (rule("a", 'deny = "x"', "estimate = { }"), "match.estimate: an estimate is compared with something"),
        (rule("a", 'deny = "x"', "estimate = { peak_above = -1 }"), "match.estimate.peak_above: "),
        (
            rule("a", 'deny = "x"', "waiting_above = { spark = true }"),
            "match.waiting_above.spark: it has to be a valid",
        ),
        (rule("a", 'deny = "x"', 'down = "sprak"'), "rule 'a': match.down: there is no engine sprak"),
        ('[groups]\nadmin = "ann"', "groups.admin: admin is a role"),
        ("[rule]\nname = 'x'", "rule: it has to be a valid list"),
        ("a = " + "[" * 10_000, "no TOML"),
        ("a = " + "9" * 10_000, "no TOML"),
    ],
)
def test_what_is_wrong_is_told_with_its_key(written: str, message: str) -> None:
    with pytest.raises(RulesInvalid) as wrong:
        read_rules(written.encode(), ENGINES)
    assert [problem for problem in wrong.value.problems if message in problem], wrong.value.problems


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(RulesInvalid) as wrong:
        read_rules((rule("a", "x = 1") + rule("b", 'strict = "x"', "y = 2")).encode(), ENGINES)
    assert [problem.partition(": there")[0] for problem in wrong.value.problems if "no such key" in problem] == [
        "rule 'a': x",
        "rule 'b': match.y",
    ]


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
    wait_until(lambda: rules.state().problems[0] == GONE, "a file that is gone is", LOOK_S + SETTLED_S + 5)
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
    files = [rule("v", 'strict = "spark"'), rule("v", 'strict = "hive"'), "broken = [", rule("v", 'strict = "impala"')]
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
        assert record.decision.engine in ("spark", "hive", "impala")
        assert {attempt.engine for attempt in record.attempts} == {record.decision.engine}
        assert record.decision.engine in record.decision.reasons[0].text
    assert len({record.engine for record in records}) > 1
    assert house.gateway.router.rules.state().hits["v"] == 120
