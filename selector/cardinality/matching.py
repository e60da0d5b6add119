"""Effect of an inner join on one of its sides, for any relation on the other.

In a cell with n' rows on the other side and D possible keys, a row matches n' / D others: as if the keys of every side
were among those of the side with most keys (containment), and all keys of a cell had equally many rows. Where both
sides have a sample by key, these correct the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from selector.cardinality.join_messages import Floats, Key, KeyRows, Message
from selector.cardinality.keys.classes import Bools, KeyClass, KeyClasses, Member, Places
from selector.cardinality.relation import Relation
from selector.join_keys import key_order
from selector.plan import PlanColumn

MATCHED = 60.0  # weight of the estimate against sampled keys, in keys

Pairs = Sequence[tuple[PlanColumn, PlanColumn]]


def join_message(
    side: Relation, other: Relation, pairs: Pairs, classes: KeyClasses, beyond: Sequence[Message] = ()
) -> Message:
    """Return the effect of an inner join on ``side``.

    pairs: (column of ``side``, column of ``other``). beyond: messages to ``other``.
    """
    cells, compared = _cells(side, other, pairs, classes)
    mine = Key(tuple(a for a, _ in compared), cells)
    theirs = Key(tuple(b for _, b in compared), cells)
    message = _by_cells(side, other, mine, theirs, beyond) if cells is not None else None
    if message is None:
        message = _on_average(side, other, compared[0], beyond)
        compared = compared[:1]
    rows = other.effective_rows(beyond)
    if not rows:  # no sample
        rows = min((sent.effective_rows for sent in beyond), default=math.inf)
    message = Message(message.key, message.factor, *message.later, null=message.null, effective_rows=rows)
    if len(pairs) > len(compared):
        return _narrowed(message, side, other, pairs)
    return message


def has_cells(side: Relation, other: Relation, pairs: Pairs, classes: KeyClasses) -> bool:
    """Tell whether a join is estimated cell by cell."""
    cells, compared = _cells(side, other, pairs, classes)
    if cells is None:
        return False
    keys = Key(tuple(a for a, _ in compared), cells), Key(tuple(b for _, b in compared), cells)
    return side.possible_keys(keys[0]) is not None and other.possible_keys(keys[1]) is not None


def _cells(side: Relation, other: Relation, pairs: Pairs, classes: KeyClasses) -> tuple[KeyClass | None, Pairs]:
    """Return the cells over which two sides are compared, and the pairs of columns: all of them if possible."""
    if len(pairs) > 1:
        ordered = sorted(pairs, key=lambda pair: key_order(pair[0].name, pair[1].name))
        mine, theirs = _members(side, [a for a, _ in ordered]), _members(other, [b for _, b in ordered])
        if mine is not None and theirs is not None:
            both = tuple(sorted({*mine, *theirs}, key=lambda member: (member.statistics.table, member.columns)))
            return classes.together(both), ordered
        pairs = sorted(pairs, key=lambda pair: -max(side.ndv(pair[0]) or 0.0, other.ndv(pair[1]) or 0.0))
    return classes.of(pairs[0][0]), pairs[:1]


def _members(side: Relation, columns: Sequence[PlanColumn]) -> list[Member] | None:
    """Return the columns as a key of each table that has all of them; None if they come from several tables."""
    bases = side.bases(columns)
    if bases is None or any(column.name not in base.statistics.columns for base, own in bases for column in own):
        return None
    return [Member(base.statistics, tuple(column.name for column in own)) for base, own in bases]


def _by_cells(side: Relation, other: Relation, mine: Key, theirs: Key, beyond: Sequence[Message]) -> Message | None:
    possible = side.possible_keys(mine)
    spread = other.vector(theirs, beyond) if possible is not None else None
    if possible is None or spread is None:
        return None
    same = all(side.allowed(a) == other.allowed(b) for a, b in zip(mine.columns, theirs.columns, strict=True))
    domain = spread.domain if same else np.maximum(possible, spread.domain)
    exist = domain > 0.0
    factor = np.divide(spread.rows, domain, out=np.zeros(domain.size), where=exist)
    if np.any(exist & (domain < 1.0)):  # of a key that may not exist
        factor = np.minimum(factor, np.maximum(spread.largest, spread.rows))
    assert mine.cells is not None
    several = np.flatnonzero(~mine.cells.alone)  # ranges of several keys
    matches = _matches(side.key_rows(mine), other.key_rows(theirs, beyond), mine.cells) if several.size else None
    if matches is not None:
        factor[several] *= matches.lift(factor, matches.met)

    def match_share() -> Floats:
        shares = np.minimum(1.0, np.divide(spread.ndv, domain, out=np.zeros(domain.size), where=exist))
        if matches is not None:
            matched = np.minimum(matches.met, 1.0)
            some = shares * matches.lift(shares, matched)
            most = 1.0 - (1.0 - shares) * matches.lift(1.0 - shares, 1.0 - matched)
            shares[several] = np.clip(np.where(shares > 0.5, most, some), 0.0, 1.0)[several]
        return np.minimum(shares, factor)  # each such row has one match at least

    return Message(mine, factor, match_share, lambda: np.maximum(np.minimum(spread.largest, spread.upper), factor))


@dataclass(frozen=True, slots=True, eq=False)
class _Matches:
    """Keys that were sampled on both sides and share a range with others. All arrays have the shape (keys,).

    cells: cell of each key.
    rows: rows of one side.
    met: rows of the other side.
    """

    cells: Places
    rows: Floats
    met: Floats

    def lift(self, expected: Floats, met: Floats) -> float:
        """Return the correction factor for an estimate by cells: matches of sampled keys per expected match.

        expected: shape (cells.count,), the estimate per row. met: shape (keys,), the counted value per row. MATCHED
        keys with the expected value are added as a prior.
        """
        matches = self.rows * expected[self.cells]
        whole = float(matches.sum())
        if whole <= 0.0:
            return 1.0
        prior_rows = whole / float(np.count_nonzero(self.rows)) * MATCHED
        lift = (float((self.rows * met).sum()) + prior_rows) / (whole + prior_rows)
        return 1.0 + (lift - 1.0) * self._significance(matches, met)

    def _significance(self, matches: Floats, met: Floats) -> float:
        """Return how far a difference between counted and expected matches is to be believed, 0..1.

        matches: shape (keys,), the expected ones. The positive-part estimator of James and Stein, 1961: what chance
        alone would bring is taken off. The variance is the larger one of independent matches and of the counted ones.
        """
        differences = self.rows * met - matches
        difference = float(differences.sum())
        if not difference:
            return 0.0
        variance = max(float((self.rows * matches).sum()), float((differences * differences).sum()))
        return max(0.0, 1.0 - variance / difference**2)


def _matches(mine: KeyRows | None, theirs: KeyRows | None, cells: KeyClass) -> _Matches | None:
    """Return the keys that both sides sampled; None without any."""
    if mine is None or theirs is None:
        return None
    if not theirs.line.size:
        return None
    cache_key = "matches", id(mine.line), id(theirs.line), mine.share, theirs.share
    if cache_key not in cells.cache:
        # the cached value refers to the lines, so that their ids stay unique
        cells.cache[cache_key] = _compared(mine, theirs, cells), mine.line, theirs.line
    (keys, at, place, same), *_ = cells.cache[cache_key]
    rows = mine.rows[keys]
    return _Matches(at, rows, np.where(same, theirs.rows[place], 0.0)) if np.any(rows) else None


def _compared(mine: KeyRows, theirs: KeyRows, cells: KeyClass) -> tuple[Places, Places, Places, Bools]:
    """Return keys of one side drawn on both, their cells, their places on the other side, and whether it has them."""
    keys = np.flatnonzero(mine.chance < min(mine.share, theirs.share))
    at = cells.of(mine.line[keys])
    keys, at = keys[~cells.alone[at]], at[~cells.alone[at]]
    line = mine.line[keys]
    place = np.minimum(np.searchsorted(theirs.line, line), theirs.line.size - 1)
    return keys, at, place, theirs.line[place] == line


def _on_average(
    side: Relation, other: Relation, pair: tuple[PlanColumn, PlanColumn], beyond: Sequence[Message]
) -> Message:
    """Return the effect of a join without cells: System R's containment."""
    column, other_column = pair
    rows, most = other.total(beyond)
    mine, theirs = side.domain(column), other.domain(other_column)
    if mine is None and theirs is None:
        mine = theirs = max(1.0, min(side.rows, rows))
    domain = max(mine or 1.0, theirs or 1.0, 1.0)
    both = side.present(column) * other.present(other_column)

    def match_share() -> Floats:
        ndv = other.ndv(other_column) if both > 0.0 and rows > 0.0 else 0.0
        return np.array([min(1.0, (ndv if ndv is not None else max(1.0, rows)) / domain)])

    return Message(Key((column,), None), np.array([both * rows / domain]), match_share, np.array([most]))


def _narrowed(message: Message, side: Relation, other: Relation, pairs: Pairs) -> Message:
    """Reduce a message for the first key by the selectivity of the other keys.

    Several keys together have at most as many combinations as rows; with a unique combination on one side, every row
    of the other has one match at most. If both sides have samples, the fewer combinations are among the more.
    """
    column = message.key.columns[0]
    other_column = next(b for a, b in pairs if a is column)
    first = max(side.combinations([column]), other.combinations([other_column]))
    mine, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    seen = side.counts_combinations(mine) and other.counts_combinations(theirs)
    both = (max if seen else min)(side.combinations(mine), other.combinations(theirs))
    factor: Floats = message.factor * min(1.0, first / max(first, both))
    match_share, upper = (lambda: np.minimum(message.match_share, factor)), (lambda: message.upper)
    return replace(message, factor=factor, match_share=match_share, upper=upper)
