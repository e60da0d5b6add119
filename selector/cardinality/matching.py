"""What an inner join does to one of its sides, whatever stands on the other.

In a cell with n' rows on the other side and D possible keys, a row meets n' / D others: as if the keys of every side
were among those of the side that has most (containment), and all keys of a cell had equally many rows. Where rows were
sampled by the key on both sides, these tell how far the truth is from it.
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

MATCHED = 60.0  # keys that are added to the sampled ones, before these tell how many rows they meet

Pairs = Sequence[tuple[PlanColumn, PlanColumn]]


def met(here: Relation, there: Relation, pairs: Pairs, classes: KeyClasses, beyond: Sequence[Message] = ()) -> Message:
    """Return what an inner join does to one side. pairs: (its column, the other's). beyond: messages to the other."""
    cells, compared = _cells(here, there, pairs, classes)
    mine = Key(tuple(a for a, _ in compared), cells)
    theirs = Key(tuple(b for _, b in compared), cells)
    message = _by_cells(here, there, mine, theirs, beyond) if cells is not None else None
    if message is None:
        message = _on_average(here, there, compared[0], beyond)
        compared = compared[:1]
    told = there.told(beyond) or min((one.told for one in beyond), default=math.inf)  # 0: it has no sample
    message = Message(message.key, message.factor, *message.later, null=message.null, told=told)
    if len(pairs) > len(compared):
        return _narrowed(message, here, there, pairs)
    return message


def has_cells(here: Relation, there: Relation, pairs: Pairs, classes: KeyClasses) -> bool:
    """Tell whether a join is answered cell by cell."""
    cells, compared = _cells(here, there, pairs, classes)
    if cells is None:
        return False
    keys = Key(tuple(a for a, _ in compared), cells), Key(tuple(b for _, b in compared), cells)
    return here.possible_keys(keys[0]) is not None and there.possible_keys(keys[1]) is not None


def _cells(here: Relation, there: Relation, pairs: Pairs, classes: KeyClasses) -> tuple[KeyClass | None, Pairs]:
    """Return the cells over which two sides are compared, and by which of their keys: by all if that can be."""
    if len(pairs) > 1:
        ordered = sorted(pairs, key=lambda pair: key_order(pair[0].name, pair[1].name))
        mine, theirs = _members(here, [a for a, _ in ordered]), _members(there, [b for _, b in ordered])
        if mine is not None and theirs is not None:
            both = tuple(sorted({*mine, *theirs}, key=lambda member: (member.statistics.table, member.columns)))
            return classes.together(both), ordered
        pairs = sorted(pairs, key=lambda pair: -max(here.ndv(pair[0]) or 0.0, there.ndv(pair[1]) or 0.0))
    return classes.of(pairs[0][0]), pairs[:1]


def _members(side: Relation, columns: Sequence[PlanColumn]) -> list[Member] | None:
    """Return the tables that columns were read from together; None if they come from different ones."""
    bases = side.bases(columns)
    if bases is None or any(column.name not in base.statistics.columns for base, own in bases for column in own):
        return None
    return [Member(base.statistics, tuple(column.name for column in own)) for base, own in bases]


def _by_cells(here: Relation, there: Relation, mine: Key, theirs: Key, beyond: Sequence[Message]) -> Message | None:
    possible = here.possible_keys(mine)
    their = there.vector(theirs, beyond) if possible is not None else None
    if possible is None or their is None:
        return None
    same = all(here.allowed(a) == there.allowed(b) for a, b in zip(mine.columns, theirs.columns, strict=True))
    domain = their.domain if same else np.maximum(possible, their.domain)
    there_are = domain > 0.0
    factor = np.divide(their.rows, domain, out=np.zeros(domain.size), where=there_are)
    if np.any(there_are & (domain < 1.0)):  # of a key that there may not even be
        factor = np.minimum(factor, np.maximum(their.largest, their.rows))
    assert mine.cells is not None
    known = np.flatnonzero(~mine.cells.alone)  # ranges of several keys
    matches = _matches(here.key_rows(mine), there.key_rows(theirs, beyond), mine.cells) if known.size else None
    if matches is not None:
        factor[known] *= matches.lift(factor, matches.met)

    def kept() -> Floats:
        found = np.minimum(1.0, np.divide(their.ndv, domain, out=np.zeros(domain.size), where=there_are))
        if matches is not None:
            matched = np.minimum(matches.met, 1.0)
            some = found * matches.lift(found, matched)
            most = 1.0 - (1.0 - found) * matches.lift(1.0 - found, 1.0 - matched)
            found[known] = np.clip(np.where(found > 0.5, most, some), 0.0, 1.0)[known]
        return np.minimum(found, factor)  # a row that is kept meets one at least

    return Message(mine, factor, kept, lambda: np.maximum(np.minimum(their.largest, their.upper), factor))


@dataclass(frozen=True, slots=True, eq=False)
class _Matches:
    """Keys that were sampled on both sides and share a range with others.

    cells: shape (keys,), the cell of each. rows: of one side; met: rows of the other side that each of them meets.
    """

    cells: Places
    rows: Floats
    met: Floats

    def lift(self, expected: Floats, met: Floats) -> float:
        """Return by what something must be multiplied that was expected in each cell, shape (cells.count,).

        met: shape (keys,), what each row met in its place. Besides what is found, MATCHED keys are added that meet as
        many as was expected.
        """
        whole = float((self.rows * expected[self.cells]).sum())
        if whole <= 0.0:
            return 1.0
        each = whole / float(np.count_nonzero(self.rows)) * MATCHED
        return (float((self.rows * met).sum()) + each) / (whole + each)


def _matches(mine: KeyRows | None, theirs: KeyRows | None, cells: KeyClass) -> _Matches | None:
    """Return the keys that were sampled on both sides; None without any."""
    if mine is None or theirs is None:
        return None
    if not theirs.line.size:
        return None
    asked = "matches", id(mine.line), id(theirs.line), mine.share, theirs.share
    if asked not in cells.found:
        cells.found[asked] = _compared(mine, theirs, cells), mine.line, theirs.line  # kept as long as identities count
    (keys, at, place, same), *_ = cells.found[asked]
    rows = mine.rows[keys]
    return _Matches(at, rows, np.where(same, theirs.rows[place], 0.0)) if np.any(rows) else None


def _compared(mine: KeyRows, theirs: KeyRows, cells: KeyClass) -> tuple[Places, Places, Places, Bools]:
    """Return which sampled keys of one side count, their cells, where the other side has them, and whether it does."""
    keys = np.flatnonzero(mine.chance < min(mine.share, theirs.share))
    at = cells.of(mine.line[keys])
    keys, at = keys[~cells.alone[at]], at[~cells.alone[at]]
    line = mine.line[keys]
    place = np.minimum(np.searchsorted(theirs.line, line), theirs.line.size - 1)
    return keys, at, place, theirs.line[place] == line


def _on_average(
    here: Relation, there: Relation, pair: tuple[PlanColumn, PlanColumn], beyond: Sequence[Message]
) -> Message:
    """Return what a join does where nothing is known by cells: System R's containment."""
    column, other = pair
    rows, most = there.total(beyond)
    mine, theirs = here.domain(column), there.domain(other)
    if mine is None and theirs is None:
        mine = theirs = max(1.0, min(here.rows, rows))
    domain = max(mine or 1.0, theirs or 1.0, 1.0)
    both = here.present(column) * there.present(other)

    def kept() -> Floats:
        ndv = there.ndv(other) if both > 0.0 and rows > 0.0 else 0.0
        return np.array([min(1.0, (ndv if ndv is not None else max(1.0, rows)) / domain)])

    return Message(Key((column,), None), np.array([both * rows / domain]), kept, np.array([most]))


def _narrowed(message: Message, here: Relation, there: Relation, pairs: Pairs) -> Message:
    """Take the keys behind the first one into account, as far as they make combinations more numerous.

    Of several keys together there are no more combinations than rows; with a unique combination on one side every
    row of the other meets one at most. Where both sides were sampled the fewer are among the more.
    """
    column = message.key.columns[0]
    other = next(b for a, b in pairs if a is column)
    first = max(here.combinations([column]), there.combinations([other]))
    mine, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    seen = here.counts_combinations(mine) and there.counts_combinations(theirs)
    both = (max if seen else min)(here.combinations(mine), there.combinations(theirs))
    factor: Floats = message.factor * min(1.0, first / max(first, both))
    kept, upper = (lambda: np.minimum(message.kept, factor)), (lambda: message.upper)
    return replace(message, factor=factor, kept=kept, upper=upper)
