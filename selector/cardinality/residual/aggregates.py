"""Selectivity of conditions on aggregates: on rows that are joined with a grouping by its key, and on groups.

A correlated subquery is a grouping by its key, joined with the rows of the outer query. For sampled outer rows, the
aggregate is computed over the sampled inner rows with the same key, and the condition is evaluated on both. Keys with
sampled rows stand for those without.
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
from selector.cardinality.residual.aggregate_conditions import AggregateCondition, Reader, answers, with_prior
from selector.cardinality.residual.joined import is_whole
from selector.cardinality.residual.measured import (
    KeyMeasures,
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
    """Join of outer rows with the groups of their key.

    outer: the outer rows.
    side: node that outputs the groups.
    pairs: (column of an outer row, key of its group).
    drops: rows without a group are dropped.
    """

    outer: Relation
    side: PlanNode
    pairs: tuple[tuple[PlanColumn, PlanColumn], ...]
    drops: bool


class Aggregates:
    """Estimator of conditions on aggregates of one plan."""

    def __init__(self, plan: Plan, classes: KeyClasses, relations: Mapping[int, Relation]) -> None:
        """Prepare. relations: output of each node, by ``id(node)``; filled while nodes are estimated."""
        self._tracer = Tracer(plan)
        self._dialect = plan.dialect
        self._classes = classes
        self._relations = relations
        self._reader = Reader(self._tracer, plan.dialect)
        self._groups = SampledGroups(self._tracer, relations, plan.dialect)

    def equalities(self, node: PlanNode) -> dict[tuple[PlanColumn, PlanColumn], str]:
        """Return the keys of a join that compare an aggregate, each with its condition (SQL text)."""
        conditions = {}
        for pair in node.join_keys:
            for (column, other), child in zip((pair, pair[::-1]), node.children, strict=True):
                if column.table is None and other.table is not None and self._tracer.column(column, child) is not None:
                    equal = exp.EQ(
                        this=exp.column(exp.to_identifier(other.name, quoted=True)), expression=exp.column(MARK)
                    )
                    conditions[pair] = equal.sql(dialect=self._dialect)
        return conditions

    def selectivity(self, condition: Condition, node: PlanNode, prior: float = RANGE_SHARE) -> float | None:
        """Return the selectivity of a condition on a join's pairs, or on a filter's rows.

        prior: selectivity expected without samples. None: the condition is not on aggregates of one grouping, or there
        is no sample.
        """
        having = self._reader.read(condition, node)
        if having is None:
            return None
        if not having.grouping.group_keys:
            return self._of_one(having, node)
        if node.operator in _JOINS:
            lookup = self._lookup(having, node)
            return self._of_rows(having, lookup) if lookup is not None else None
        below = node.children[0]
        while below.operator in _PASSED:
            below = below.children[-1]
        if below is having.grouping:
            return self._groups.selectivity(having, prior)
        while below.operator in _JOINS:
            lookup = self._lookup(having, below)
            if lookup is not None:
                return self._of_rows(having, lookup)
            inner = [child for child in below.children if self._tracer.grouping(child) is having.grouping]
            if len(inner) != 1:
                return None
            below = inner[0]
            while below.operator in _PASSED:
                below = below.children[-1]
        return None

    # ------------------------------------------------------------------ lookups

    def _lookup(self, having: AggregateCondition, node: PlanNode) -> _Lookup | None:
        """Return a join as a lookup of a grouping's keys; None if it does not compare all of them."""
        sides = [child for child in node.children if self._tracer.grouping(child) is having.grouping]
        if len(sides) != 1 or len(node.children) != 2:
            return None
        is_left = sides[0] is node.children[0]
        outer = self._relations.get(id(node.children[1 if is_left else 0]))
        pairs = []
        for key in having.grouping.group_keys:
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

    def _grouped(self, having: AggregateCondition) -> tuple[Scanned, list[str]] | None:
        """Return the grouped scan and its columns of the grouping key; None if several scans are grouped."""
        scans = self._tracer.scans(having.grouping.children[0])
        source = self._relations.get(id(having.grouping.children[0]))
        used = {column.name.lower() for call in having.calls for column in call.find_all(exp.Column)}
        if len(scans) > 1:  # keys of the outer rows may be joined to the grouped rows
            scans = [scan for scan in scans if used & {column.name.lower() for column in scan.scanned}] or scans
        if len(scans) != 1 or source is None:
            return None
        (scan,) = scans
        keys = []
        for key in having.grouping.group_keys:
            own = self._classes.equal_in(key, scan.table, scan.scan)
            if own is None:
                return None
            keys.append(own)
        base = source.base(PlanColumn(keys[0], None, scan.table, scan.scan)) if keys else None
        if base is None:
            relation = self._relations.get(id(scan))
            base = relation if isinstance(relation, Scanned) else None
        return None if base is None else (base, keys)

    # ------------------------------------------------------------------ estimates

    def _of_one(self, having: AggregateCondition, node: PlanNode) -> float | None:
        """Return the selectivity of a condition with the aggregates of all rows of another relation."""
        if node.operator not in _JOINS:
            return 1.0  # the only group
        sides = [child for child in node.children if self._tracer.grouping(child) is not having.grouping]
        outer = self._relations.get(id(sides[0])) if len(sides) == 1 else None
        scans = self._tracer.scans(having.grouping.children[0])
        source = self._relations.get(id(having.grouping.children[0]))
        columns = [column for column in sides[0].columns if column.table and column.name.lower() in having.columns]
        read = [column for scan in scans for column in scan.columns][:1]
        inner = source.base(read[0]) if len(scans) == 1 and read and source is not None else None
        sampled = outer.sampled(columns[0]) if outer is not None and columns else None
        if sampled is None or inner is None or len({(one.table, one.scan) for one in columns}) > 1:
            return None
        base, weights = sampled
        sample = base.statistics.sample
        values = one_group(having.calls, inner)
        if sample is None or values is None:
            return None
        if all(one.data_type == "double" and not one.nulls[0] for one in values):
            return self._with_constants(having, base, values)
        rows = np.flatnonzero(weights if weights.any() else np.ones(sample.rows))
        places = np.zeros(rows.size, dtype=np.intp)
        holds = answers(
            having, having.test, base, sample, rows, [one.at(places) for one in values], dialect=self._dialect
        )
        own = weights[rows]
        return None if holds is None or own.sum() <= 0.0 else float(own[holds].sum() / own.sum())

    def _with_constants(self, having: AggregateCondition, base: Scanned, values: Sequence[Measure]) -> float | None:
        """Return the selectivity of a condition with constants in place of its aggregates."""
        numbers = {f"aggregate {at}": float(one.values[0]) for at, one in enumerate(values)}
        test = having.test.transform(
            lambda part: (
                exp.convert(numbers[part.name]) if isinstance(part, exp.Column) and part.name in numbers else part
            )
        )
        behind = base.behind([test.sql(dialect=self._dialect)])
        if len(behind.filtered.unanswered) > len(base.filtered.unanswered) or base.rows <= 0.0:
            return None
        return min(1.0, behind.rows / base.rows)

    def _of_rows(self, having: AggregateCondition, lookup: _Lookup) -> float | None:
        """Return the selectivity of a condition on outer rows with a key; if a join drops others, with a group."""
        having = self._reader.with_passed(having, lookup.side)
        grouped = self._grouped(having)
        if grouped is None:
            return None
        inner, keys = grouped
        outer = self._outer(having, lookup)
        if outer is None:
            return None
        base, weights, own = outer
        ordered = sorted(zip(own, keys, strict=True), key=lambda pair: key_order(*pair))
        mine, theirs = Member(base.statistics, tuple(a for a, _ in ordered)), tuple(b for _, b in ordered)
        if any(name not in inner.statistics.columns for name in theirs) or any(
            name not in base.statistics.columns for name in mine.columns
        ):
            return None
        if mine.types != Member(inner.statistics, theirs).types:
            return None
        key_measures = measured(having.calls, inner, theirs)
        sample = base.statistics.sample
        if key_measures is None or sample is None or any(name not in sample.columns for name in mine.columns):
            return None
        return self._looked_up(having, base, weights, mine, key_measures, drops=lookup.drops)

    def _outer(self, having: AggregateCondition, lookup: _Lookup) -> tuple[Scanned, Floats, list[str]] | None:
        """Return the scan of the outer rows, with the weights of its sampled rows and the columns of their key."""
        for table, scan in self._classes.scans_of(lookup.pairs[0][0]):
            own = [self._classes.equal_in(column, table, scan) for column, _ in lookup.pairs]
            names = [name for name in own if name is not None]
            if len(names) < len(own):
                continue
            sampled = lookup.outer.sampled(PlanColumn(names[0], None, table, scan))
            if sampled is None:
                continue
            columns = {name.lower() for name in sampled[0].statistics.columns}
            if having.columns <= columns:
                return sampled[0], sampled[1], names
        return None

    def _looked_up(
        self,
        having: AggregateCondition,
        base: Scanned,
        weights: Floats,
        mine: Member,
        key_measures: KeyMeasures,
        *,
        drops: bool,
    ) -> float | None:
        """Return the selectivity of a condition on sampled outer rows, each with the aggregates of its key."""
        sample = base.statistics.sample
        assert sample is not None
        weights = weights if weights.any() else np.ones(sample.rows)
        rows = np.flatnonzero((weights > 0.0) & (has_key(sample, mine.columns) | (not drops)))
        places, is_known, popular = self._places(key_measures, sample, mine, rows)
        tested = self._test(having, base, sample, rows, places, key_measures, drops=drops)
        if tested is None:
            return None
        is_kept, meets = tested
        own = weights[rows]
        if key_measures.is_whole:
            whole = float(own[meets].sum())
            if whole <= 0.0:
                return None
            kept_share = float(own[is_kept].sum()) / whole
            return kept_share if is_whole(base) else with_prior(kept_share, float(meets.sum()))
        return self._by_kind(
            having, base, mine, key_measures, rows, own, is_kept, meets, is_known, popular, drops=drops
        )

    def _by_kind(
        self,
        having: AggregateCondition,
        base: Scanned,
        mine: Member,
        key_measures: KeyMeasures,
        rows: Places,
        own: Floats,
        is_kept: Bools,
        meets: Bools,
        is_known: Bools,
        popular: Bools,
        *,
        drops: bool,
    ) -> float | None:
        """Return the selectivity, with keys drawn by hash standing for all that are not popular.

        rows: sampled outer rows; all following arrays have their shape. own: weights. is_kept: satisfies the condition.
        meets: has a group. is_known: the aggregates of its key are known. popular: its key is popular.
        """
        rare = is_known & ~popular
        others = float(own[~popular].sum())
        of_popular = float(own[popular & is_kept].sum()), float(own[popular & meets].sum())
        sample_rows, sample_own, sample_kept, sample_meets = rows[rare], own[rare], is_kept[rare], meets[rare]
        chosen = self._chosen(having, base, mine, key_measures, drops=drops) if np.all(own == 1.0) else None
        sample = base.statistics.sample
        assert sample is not None
        line = row_line(sample, mine.columns)[sample_rows]
        if chosen is not None and chosen[0].size > sample_rows.size:
            line, sample_kept, sample_meets = chosen
            sample_own = np.ones(line.size)
        whole = float(sample_own.sum())
        if whole <= 0.0 and of_popular[1] <= 0.0:
            return None
        of_keys = np.bincount(np.unique(line, return_inverse=True)[1], sample_own, minlength=1)
        keys = whole * whole / float((of_keys * of_keys).sum()) if whole > 0.0 else 0.0  # effective sample size
        if whole <= 0.0:
            return of_popular[0] / of_popular[1]
        meeting = float(sample_own[sample_meets].sum()) / whole
        match_selectivity = with_prior(
            float(sample_own[sample_kept].sum()) / max(whole * meeting, 1e-9), keys * meeting
        )
        per_row = match_selectivity * meeting, meeting
        met = of_popular[1] + others * per_row[1]
        return min(1.0, (of_popular[0] + others * per_row[0]) / met) if met > 0.0 else None

    def _chosen(
        self, having: AggregateCondition, base: Scanned, mine: Member, key_measures: KeyMeasures, *, drops: bool
    ) -> tuple[Floats, Bools, Bools] | None:
        """Return rows of the sample by key: places of the key, True if kept, and True if the key has a group."""
        counted = mine.counted
        if counted is None or counted.sample is None or key_measures.bins is None:
            return None
        sample = counted.sample.rows
        mask = base.filtered.sampled(sample)
        if mask is None or any(name not in sample.columns for name in mine.columns):
            return None
        rows = np.flatnonzero(mask & has_key(sample, mine.columns))
        places, is_known, popular = self._places(key_measures, sample, mine, rows)
        rows, places = rows[is_known & ~popular], places[is_known & ~popular]
        tested = self._test(having, base, sample, rows, places, key_measures, drops=drops) if rows.size else None
        return None if tested is None else (row_line(sample, mine.columns)[rows], *tested)

    def _places(
        self, key_measures: KeyMeasures, sample: RowSample, mine: Member, rows: Places
    ) -> tuple[Places, Bools, Bools]:
        """Return ``places_in`` for the keys of sampled rows; a row without a key certainly has no group."""
        places, is_known, popular = places_in(key_measures, row_line(sample, mine.columns)[rows])
        row_has_key = has_key(sample, mine.columns)[rows]
        return np.where(row_has_key, places, -1), is_known | ~row_has_key, popular & row_has_key

    def _test(
        self,
        having: AggregateCondition,
        base: Scanned,
        sample: RowSample,
        rows: Places,
        places: Places,
        key_measures: KeyMeasures,
        *,
        drops: bool,
    ) -> tuple[Bools, Bools] | None:
        """Return True for each row that is kept, and for each with a group; None: not evaluable."""
        measures = [one.at(places) for one in key_measures.measures]
        holds = answers(having, having.test, base, sample, rows, measures, dialect=self._dialect)
        meets = (places >= 0) | (not drops)
        if holds is not None and having.passed is not None:
            passed = answers(having, having.passed, base, sample, rows, measures, dialect=self._dialect)
            meets = meets & passed if passed is not None else meets
        return None if holds is None else (holds & meets, meets)
