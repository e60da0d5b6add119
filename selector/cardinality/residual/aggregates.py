"""What conditions on aggregates keep: of rows that look an aggregate up by their key, and of the groups themselves.

A correlated subquery is a grouping by its key, joined with the rows that ask. Their sampled rows look up the aggregate
that the other table's sampled rows have for their key, and the condition is evaluated on both. Where the rows of a key
were not sampled, those of the keys that were stand for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sqlglot import exp

from selector.cardinality.join_messages import Floats
from selector.cardinality.keys.classes import Bools, KeyClasses, Member, Places, row_line
from selector.cardinality.predicates.conditions import Condition
from selector.cardinality.predicates.selectivity import RANGE_SHARE
from selector.cardinality.relation import Relation, Scanned
from selector.cardinality.residual.asked import Asked, Reader, answers, with_prior
from selector.cardinality.residual.joined import is_whole
from selector.cardinality.residual.measured import (
    Known,
    Measure,
    has_key,
    measured,
    one_group,
    places_in,
)
from selector.cardinality.residual.sampled_groups import SampledGroups
from selector.cardinality.residual.traced import Tracer
from selector.join_keys import key_order
from selector.plan import MARK, JoinType, Operator, Plan, PlanColumn, PlanNode
from selector.row_sample import RowSample

_DROPPING = (JoinType.INNER, JoinType.SEMI, JoinType.RIGHT_SEMI)
_PASSED = (Operator.PROJECT, Operator.FILTER, Operator.MATERIALIZE)
_JOINS = (Operator.HASH_JOIN, Operator.NESTED_LOOP_JOIN)


@dataclass(frozen=True, slots=True)
class _Lookup:
    """A join of rows with the groups that have their key.

    outer: those rows. side: where the groups come out. pairs: (column of a row, key of its group). drops: whether rows
    without a group are dropped.
    """

    outer: Relation
    side: PlanNode
    pairs: tuple[tuple[PlanColumn, PlanColumn], ...]
    drops: bool


class Aggregates:
    """Answers conditions on aggregates within one plan. relations: what each of its nodes puts out, by identity."""

    def __init__(self, plan: Plan, classes: KeyClasses, relations: Mapping[int, Relation]) -> None:
        self._tracer = Tracer(plan)
        self._dialect = plan.dialect
        self._classes = classes
        self._relations = relations
        self._reader = Reader(self._tracer, plan.dialect)
        self._groups = SampledGroups(self._tracer, relations, plan.dialect)
        self.spelled = self._reader.spelled

    def equalities(self, node: PlanNode) -> dict[tuple[PlanColumn, PlanColumn], str]:
        """Return the keys of a join that compare an aggregate, with the condition (SQL text) that each of them is."""
        found = {}
        for pair in node.join_keys:
            for (column, other), child in zip((pair, pair[::-1]), node.children, strict=True):
                if column.table is None and other.table is not None and self._tracer.column(column, child) is not None:
                    equal = exp.EQ(
                        this=exp.column(exp.to_identifier(other.name, quoted=True)), expression=exp.column(MARK)
                    )
                    found[pair] = equal.sql(dialect=self._dialect)
        return found

    def kept(self, condition: Condition, node: PlanNode, prior: float = RANGE_SHARE) -> float | None:
        """Return the share of a join's pairs, or of a filter's rows, that a condition keeps.

        prior: as it is expected without samples. None for a condition on anything but aggregates of one grouping, and
        where no sample tells.
        """
        asked = self._reader.read(condition, node)
        if asked is None:
            return None
        if not asked.grouping.group_keys:
            return self._of_one(asked, node)
        if node.operator in _JOINS:
            lookup = self._lookup(asked, node)
            return self._of_rows(asked, lookup) if lookup is not None else None
        below = node.children[0]
        while below.operator in _PASSED:
            below = below.children[-1]
        if below is asked.grouping:
            return self._groups.kept(asked, prior)
        while below.operator in _JOINS:
            lookup = self._lookup(asked, below)
            if lookup is not None:
                return self._of_rows(asked, lookup)
            inner = [child for child in below.children if self._tracer.grouping(child) is asked.grouping]
            if len(inner) != 1:
                return None
            below = inner[0]
            while below.operator in _PASSED:
                below = below.children[-1]
        return None

    # ------------------------------------------------------------------ what is asked

    def _lookup(self, asked: Asked, node: PlanNode) -> _Lookup | None:
        """Return how a join looks a grouping's keys up; None for one that does not compare all of them."""
        sides = [child for child in node.children if self._tracer.grouping(child) is asked.grouping]
        if len(sides) != 1 or len(node.children) != 2:
            return None
        is_left = sides[0] is node.children[0]
        outer = self._relations.get(id(node.children[1 if is_left else 0]))
        pairs = []
        for key in asked.grouping.group_keys:
            equal = [
                pair[1 if is_left else 0]
                for pair in node.join_keys
                if self._classes.are_equal(pair[0 if is_left else 1], key)
            ]
            if not equal or outer is None:
                return None
            pairs.append((equal[0], key))
        if outer is None:
            return None
        kind = node.join_type or JoinType.INNER
        drops = kind in _DROPPING or kind is (JoinType.LEFT if is_left else JoinType.RIGHT)
        return _Lookup(outer, sides[0], tuple(pairs), drops)

    def _grouped(self, asked: Asked) -> tuple[Scanned, list[str]] | None:
        """Return the rows that are grouped, if they come of one scan, and their columns that are its keys."""
        scans = self._tracer.scans(asked.grouping.children[0])
        source = self._relations.get(id(asked.grouping.children[0]))
        used = {column.name.lower() for call in asked.calls for column in call.find_all(exp.Column)}
        if len(scans) > 1:  # keys of those that ask may come out beside the rows that are asked for
            scans = [scan for scan in scans if used & {column.name.lower() for column in scan.scanned}] or scans
        if len(scans) != 1 or source is None:
            return None
        (scan,) = scans
        keys = []
        for key in asked.grouping.group_keys:
            own = self._classes.equal_in(key, scan.table, scan.scan)
            if own is None:
                return None
            keys.append(own)
        base = source.base(PlanColumn(keys[0], None, scan.table, scan.scan)) if keys else None
        if base is None:
            found = self._relations.get(id(scan))
            base = found if isinstance(found, Scanned) else None
        return None if base is None else (base, keys)

    # ------------------------------------------------------------------ answers

    def _of_one(self, asked: Asked, node: PlanNode) -> float | None:
        """Return the share of rows for which a condition holds with the aggregates of all rows of another relation."""
        if node.operator not in _JOINS:
            return 1.0  # the only group, which is asked whether it can matter at all
        sides = [child for child in node.children if self._tracer.grouping(child) is not asked.grouping]
        outer = self._relations.get(id(sides[0])) if len(sides) == 1 else None
        scans = self._tracer.scans(asked.grouping.children[0])
        source = self._relations.get(id(asked.grouping.children[0]))
        columns = [one for one in sides[0].columns if one.table is not None and one.name.lower() in asked.columns]
        read = [one for scan in scans for one in scan.columns][:1]
        there = source.base(read[0]) if len(scans) == 1 and read and source is not None else None
        found = outer.sampled(columns[0]) if outer is not None and columns else None
        if found is None or there is None or len({(one.table, one.scan) for one in columns}) > 1:
            return None
        here, weights = found
        sample = here.statistics.sample
        values = one_group(asked.calls, there, dialect=self._dialect)
        if sample is None or values is None:
            return None
        if all(one.data_type == "double" and not one.nulls[0] for one in values):
            return self._with_constants(asked, here, values)
        rows = np.flatnonzero(weights if weights.any() else np.ones(sample.rows))
        places = np.zeros(rows.size, dtype=np.intp)
        holds = answers(
            asked, asked.test, here, sample, rows, [one.at(places) for one in values], dialect=self._dialect
        )
        own = weights[rows]
        return None if holds is None or own.sum() <= 0.0 else float(own[holds].sum() / own.sum())

    def _with_constants(self, asked: Asked, here: Scanned, values: Sequence[Measure]) -> float | None:
        """Return the share of rows for which a condition holds with numbers in the places of its aggregates."""
        numbers = {f"aggregate {at}": float(one.values[0]) for at, one in enumerate(values)}
        test = asked.test.transform(
            lambda part: (
                exp.convert(numbers[part.name]) if isinstance(part, exp.Column) and part.name in numbers else part
            )
        )
        behind = here.behind([test.sql(dialect=self._dialect)])
        if len(behind.filtered.unanswered) > len(here.filtered.unanswered) or here.rows <= 0.0:
            return None
        return min(1.0, behind.rows / here.rows)

    def _of_rows(self, asked: Asked, lookup: _Lookup) -> float | None:
        """Return the share of rows with a key for which a condition holds; of those that meet a group if others go."""
        asked = self._reader.with_passed(asked, lookup.side)
        grouped = self._grouped(asked)
        if grouped is None:
            return None
        there, keys = grouped
        outer = self._outer(asked, lookup)
        if outer is None:
            return None
        here, weights, own = outer
        ordered = sorted(zip(own, keys, strict=True), key=lambda pair: key_order(*pair))
        mine, theirs = Member(here.statistics, tuple(a for a, _ in ordered)), tuple(b for _, b in ordered)
        if any(name not in there.statistics.columns for name in theirs) or any(
            name not in here.statistics.columns for name in mine.columns
        ):
            return None
        if mine.types != Member(there.statistics, theirs).types:
            return None
        known = measured(asked.calls, there, theirs, dialect=self._dialect)
        sample = here.statistics.sample
        if known is None or sample is None or any(name not in sample.columns for name in mine.columns):
            return None
        return self._looked_up(asked, here, weights, mine, known, drops=lookup.drops)

    def _outer(self, asked: Asked, lookup: _Lookup) -> tuple[Scanned, Floats, list[str]] | None:
        """Return the rows that ask, with their weights and the columns that are their key."""
        for table, scan in self._classes.scans_of(lookup.pairs[0][0]):
            own = [self._classes.equal_in(column, table, scan) for column, _ in lookup.pairs]
            names = [name for name in own if name is not None]
            if len(names) < len(own):
                continue
            found = lookup.outer.sampled(PlanColumn(names[0], None, table, scan))
            if found is None:
                continue
            columns = {name.lower() for name in found[0].statistics.columns}
            if asked.columns <= columns:
                return found[0], found[1], names
        return None

    def _looked_up(
        self, asked: Asked, here: Scanned, weights: Floats, mine: Member, known: Known, *, drops: bool
    ) -> float | None:
        """Evaluate a condition on the rows that ask, each with the aggregates of its key."""
        sample = here.statistics.sample
        assert sample is not None
        weights = weights if weights.any() else np.ones(sample.rows)
        rows = np.flatnonzero((weights > 0.0) & (has_key(sample, mine.columns) | (not drops)))
        places, told, popular = self._places(known, sample, mine, rows)
        found = self._test(asked, here, sample, rows, places, known, drops=drops)
        if found is None:
            return None
        kept, meets = found
        own = weights[rows]
        if known.is_whole:
            whole = float(own[meets].sum())
            if whole <= 0.0:
                return None
            kept_share = float(own[kept].sum()) / whole
            return kept_share if is_whole(here) else with_prior(kept_share, float(meets.sum()))
        return self._by_kind(asked, here, mine, known, rows, own, kept, meets, told, popular, drops=drops)

    def _by_kind(
        self,
        asked: Asked,
        here: Scanned,
        mine: Member,
        known: Known,
        rows: Places,
        own: Floats,
        kept: Bools,
        meets: Bools,
        told: Bools,
        popular: Bools,
        *,
        drops: bool,
    ) -> float | None:
        """Let keys that were chosen by their hash stand for all that are not popular."""
        rare = told & ~popular
        others = float(own[~popular].sum())
        of_popular = float(own[popular & kept].sum()), float(own[popular & meets].sum())
        sample_rows, sample_own, sample_kept, sample_meets = rows[rare], own[rare], kept[rare], meets[rare]
        chosen = self._chosen(asked, here, mine, known, drops=drops) if np.all(own == 1.0) else None
        sample = here.statistics.sample
        assert sample is not None
        line = row_line(sample, mine.columns)[sample_rows]
        if chosen is not None and chosen[0].size > sample_rows.size:
            line, sample_kept, sample_meets = chosen
            sample_own = np.ones(line.size)
        whole = float(sample_own.sum())
        if whole <= 0.0 and of_popular[1] <= 0.0:
            return None
        of_keys = np.bincount(np.unique(line, return_inverse=True)[1], sample_own, minlength=1)
        keys = (
            whole * whole / float((of_keys * of_keys).sum()) if whole > 0.0 else 0.0
        )  # that tell as much if all are alike
        if whole <= 0.0:
            return of_popular[0] / of_popular[1]
        meeting = float(sample_own[sample_meets].sum()) / whole
        kept_there = with_prior(float(sample_own[sample_kept].sum()) / max(whole * meeting, 1e-9), keys * meeting)
        each = kept_there * meeting, meeting
        met = of_popular[1] + others * each[1]
        return min(1.0, (of_popular[0] + others * each[0]) / met) if met > 0.0 else None

    def _chosen(
        self, asked: Asked, here: Scanned, mine: Member, known: Known, *, drops: bool
    ) -> tuple[Floats, Bools, Bools] | None:
        """Return the same of rows that were chosen by the key: its places, whether they are kept, and meet a group."""
        counted = mine.counted
        if counted is None or counted.sample is None or known.bins is None:
            return None
        sample = counted.sample.rows
        mask = here.filtered.sampled(sample)
        if mask is None or any(name not in sample.columns for name in mine.columns):
            return None
        rows = np.flatnonzero(mask & has_key(sample, mine.columns))
        places, told, popular = self._places(known, sample, mine, rows)
        rows, places = rows[told & ~popular], places[told & ~popular]
        found = self._test(asked, here, sample, rows, places, known, drops=drops) if rows.size else None
        return None if found is None else (row_line(sample, mine.columns)[rows], *found)

    def _places(self, known: Known, sample: RowSample, mine: Member, rows: Places) -> tuple[Places, Bools, Bools]:
        """Return what is known of the keys of sampled rows; a row without one meets no group, for certain."""
        places, told, popular = places_in(known, row_line(sample, mine.columns)[rows])
        there = has_key(sample, mine.columns)[rows]
        return np.where(there, places, -1), told | ~there, popular & there

    def _test(
        self,
        asked: Asked,
        here: Scanned,
        sample: RowSample,
        rows: Places,
        places: Places,
        known: Known,
        *,
        drops: bool,
    ) -> tuple[Bools, Bools] | None:
        """Return which rows are kept, and which meet a group; None where that cannot be told."""
        measures = [one.at(places) for one in known.measures]
        holds = answers(asked, asked.test, here, sample, rows, measures, dialect=self._dialect)
        meets = (places >= 0) | (not drops)
        if holds is not None and asked.passed is not None:
            passed = answers(asked, asked.passed, here, sample, rows, measures, dialect=self._dialect)
            meets = meets & passed if passed is not None else meets
        return None if holds is None else (holds & meets, meets)
