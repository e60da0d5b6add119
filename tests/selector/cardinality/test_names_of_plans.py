"""Joins whose plans print names that several tables have: what is meant follows from the other joins."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from tests.selector.cardinality.counted import Counted

PLAYERS, YEARS, TEAMS = 60, 12, 10


def _tables() -> dict[str, pa.Table]:
    chance = np.random.default_rng(5)
    player, year = (one.ravel() for one in np.meshgrid(np.arange(PLAYERS), np.arange(YEARS)))
    team = chance.integers(0, TEAMS, player.size)
    row = {"player": player, "year": year, "team": team}
    each_year, each_team = (one.ravel() for one in np.meshgrid(np.arange(YEARS), np.arange(TEAMS)))
    return {
        "batting": pa.table({**row, "hits": chance.integers(0, 9, player.size)}),
        "fielding": pa.table({**row, "errors": chance.integers(0, 9, player.size)}),
        "teams": pa.table({"year": each_year, "team": each_team, "wins": chance.integers(0, 50, each_year.size)}),
        "calls": pa.table({"call": np.arange(500), "caller": chance.integers(0, PLAYERS, 500)}),
    }


@pytest.fixture(scope="module")
def played() -> Iterator[Counted]:
    found = Counted(_tables())
    yield found
    found.connection.close()


BOTH_TEAMS = (
    "SELECT f.errors FROM fielding f JOIN teams a ON f.year = a.year AND f.team = a.team "
    "JOIN batting b ON f.player = b.player AND f.year = b.year JOIN teams c ON b.year = c.year AND b.team = c.team"
)


@pytest.mark.parametrize(
    "filtered", ["", " WHERE c.wins < 10", " WHERE a.wins < 10", " WHERE a.wins < 20 AND c.wins > 9"]
)
def test_a_table_that_is_joined_twice_by_names_that_others_have_too(played: Counted, filtered: str) -> None:
    """Both teams are of one year and, in truth, the same: without its team a player would meet all teams of a year."""
    sql = BOTH_TEAMS + filtered
    assert played.rows(sql) == pytest.approx(played.count(sql), rel=0.01)


def test_rows_that_met_none_have_nulls_for_joins_beyond(played: Counted) -> None:
    sql = (
        "SELECT f.errors FROM fielding f LEFT JOIN batting b ON f.player = b.player AND f.year = b.year AND b.hits > 4 "
        "LEFT JOIN teams c ON b.year = c.year AND b.team = c.team"
    )
    assert played.rows(sql) == pytest.approx(played.count(sql), rel=0.01)


def test_a_list_of_constants_goes_together_with_further_conditions(played: Counted) -> None:
    """DuckDB joins the list as rows, and asks for the join's mark and the other condition in one filter."""
    sql = (
        "SELECT f.errors FROM fielding f JOIN batting b ON f.player = b.player AND f.year = b.year "
        "WHERE f.player IN (1, 5, 9, 13, 17, 21, 25) AND (f.team = 3 OR f.team = 7) AND b.hits = 2"
    )
    assert played.rows(sql) == pytest.approx(played.count(sql), rel=0.01)


def test_a_union_is_joined_by_several_columns_as_its_branches_are(played: Counted) -> None:
    union = (
        "SELECT player, year FROM batting WHERE hits < 3 UNION ALL SELECT player, year FROM fielding WHERE errors > 5"
    )
    sql = (
        f"SELECT u.player FROM ({union}) u JOIN fielding f ON u.player = f.player AND u.year = f.year WHERE f.team = 2"
    )
    assert played.rows(sql) == pytest.approx(played.count(sql), rel=0.01)


def test_a_branch_that_is_never_true_is_none(played: Counted) -> None:
    union = (
        "SELECT player, year FROM batting WHERE hits < 0 UNION ALL SELECT player, year FROM fielding WHERE errors > 5"
    )
    sql = (
        f"SELECT u.player FROM ({union}) u JOIN fielding f ON u.player = f.player AND u.year = f.year WHERE f.team = 2"
    )
    assert played.rows(sql) == pytest.approx(played.count(sql), rel=0.01)
