"""Selectivity of conditions on aggregates among groups, for groups of which samples have all rows.

These are groups of tables with complete samples, of their joins, and of samples by a key that is part of the grouping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sqlglot import exp

from selector.cardinality.groups import FEWEST_ROWS, HavingCondition, Sizes, codes_of, combined_codes
from selector.cardinality.join_messages import Floats
from selector.cardinality.keys.classes import Member, Places
from selector.cardinality.predicates.conditions import Condition
from selector.cardinality.relation import Relation, Scanned
from selector.cardinality.residual.aggregate_conditions import AggregateCondition, answers, with_prior
from selector.cardinality.residual.joined import Joined, is_whole, joined_rows
from selector.cardinality.residual.measured import chosen_rows, measure_of, measured
from selector.cardinality.residual.traced import Tracer
from selector.join_keys import SEPARATOR
from selector.plan import JoinType, Operator, PlanColumn, PlanNode
from selector.row_sample import RowSample

_PASSED = (Operator.PROJECT, Operator.FILTER)
_JOINS = (Operator.HASH_JOIN, Operator.NESTED_LOOP_JOIN)


@dataclass(frozen=True, slots=True)
class SampledGroups:
    """Estimator of conditions on groups of one plan.

    relations: output of each node, by ``id(node)``.
    """

    tracer: Tracer
    relations: Mapping[int, Relation]
    dialect: str

    def selectivity(self, having: AggregateCondition, prior: float) -> float | None:
        """Return the share of groups that satisfy a condition, by completely sampled groups; None: no such sample."""
        below, keys = having.grouping.children[0], list(having.grouping.group_keys)
        source, scans = self.relations.get(id(below)), self.tracer.scans(below)
        if len(scans) > 1:
            return self._of_joined_groups(having, source, scans)
        if source is None or not scans:
            return None
        plain = next((key for key in keys if key.table is not None), None)
        sampled = source.sampled(plain) if plain is not None else None
        if sampled is None and len(scans) == 1:
            sampled = source.sampled(scans[0].columns[0]) if scans[0].columns else None
        if sampled is None:
            return None
        base, weights = sampled
        names = []
        for key in keys:
            place = (key.table, key.scan)
            if key.table is not None and plain is not None and place != (plain.table, plain.scan):
                return None
            names.append(key.name)
        if is_whole(base):
            sample = base.statistics.sample
            assert sample is not None
            return self._of_sampled_groups(having, base, sample, weights, names, None, prior)
        by_key = self._by_key(having, base, names, prior)
        if by_key is not None:
            return by_key
        chosen = self._chosen_groups(base, names)
        if chosen is None:
            return None
        sample, weights, standing, missing = chosen
        selectivity = self._of_sampled_groups(having, base, sample, weights, names, standing, prior)
        return None if selectivity is None else (1.0 - missing) * selectivity + missing * prior

    def _by_key(self, having: AggregateCondition, base: Scanned, names: Sequence[str], prior: float) -> float | None:
        """Return the same for groups by a key: popular keys are counted, keys drawn by hash stand for all others."""
        key = next((key for key in base.statistics.keys if set(key.split(SEPARATOR)) == set(names)), None)
        every = self.relations.get(id(having.grouping))
        if key is None or every is None or having.columns:
            return None
        key_measures = measured(having.calls, base, tuple(key.split(SEPARATOR)))
        if key_measures is None or key_measures.bins is None:
            return None
        places, popular = key_measures.places[key_measures.places >= 0], key_measures.popular[key_measures.places >= 0]
        chosen = int(np.count_nonzero(~popular))
        measures = [one.at(places) for one in key_measures.measures]
        holds = answers(having, having.test, base, RowSample(0, 1.0, {}), places, measures, dialect=self.dialect)
        if holds is None or chosen < FEWEST_ROWS:
            return None
        rare = chosen / key_measures.share
        kept_groups = with_prior(float(np.count_nonzero(holds & ~popular)) / chosen, float(chosen), prior) * rare
        kept_groups += float(np.count_nonzero(holds & popular))
        return min(1.0, kept_groups / max(every.rows, 1e-9))

    def _of_joined_groups(
        self, having: AggregateCondition, source: Relation | None, scans: Sequence[PlanNode]
    ) -> float | None:
        """Return the same for groups of joined rows; None if their samples cannot be joined."""
        pairs = self._inner_pairs(having.grouping.children[0])
        groups = self.relations.get(id(having.grouping))
        bases = {
            (scan.table, scan.scan): source.base(scan.scanned[0]) if source is not None and scan.scanned else None
            for scan in scans
        }
        known_bases = {place: base for place, base in bases.items() if base is not None}
        if pairs is None or source is None or groups is None or len(known_bases) < len(bases) or having.columns:
            return None
        joined = joined_rows(known_bases, pairs)
        code = self._codes(having.grouping.group_keys, joined) if joined is not None else None
        if joined is None or code is None or not code.size:
            return None
        group_rows = np.bincount(code)
        if joined.share < 1.0:
            size_condition = HavingCondition.read(Condition(having.spelled, frozenset(), self.dialect))
            number = size_condition.number(self.dialect) if size_condition is not None else None
            if (
                size_condition is None
                or number is None
                or size_condition.kind is not exp.Count
                or size_condition.argument is not None
            ):
                return None
            if code.size < FEWEST_ROWS or len(having.grouping.group_keys) < 2:
                return None  # key statistics are better for the group sizes of one key
            return size_condition.counted(Sizes.estimated(group_rows, joined.share, groups.rows, source.rows), number)
        measures = []
        base = next(iter(known_bases.values()))
        for call in having.calls:
            names = {column.name.lower() for column in call.find_all(exp.Column)}
            own = [one for one in joined.of_scans.values() if names <= {name.lower() for name in one[1].columns}]
            if not own or (names and len(own) > 1):
                return None
            measures.append(
                measure_of(call, own[0][1], own[0][2], code, int(group_rows.size), own[0][0], np.ones(code.size))
            )
        known_measures = [one for one in measures if one is not None]
        if len(known_measures) < len(measures):
            return None
        places = np.zeros(group_rows.size, dtype=np.intp)
        sample = base.statistics.sample
        assert sample is not None
        holds = answers(having, having.test, base, sample, places, known_measures, dialect=self.dialect)
        return None if holds is None else min(1.0, float(np.count_nonzero(holds)) / max(groups.rows, 1e-9))

    def _inner_pairs(self, node: PlanNode) -> list[tuple[PlanColumn, PlanColumn]] | None:
        """Return the pairs of columns of inner joins; None if there are other operators than joins and filters."""
        if node.operator is Operator.SCAN:
            return []
        if node.operator in _JOINS and (node.join_type is not JoinType.INNER or node.predicates):
            return None
        if node.operator is Operator.FILTER and not isinstance(self.relations.get(id(node)), Scanned):
            return None
        if node.operator not in (*_PASSED, *_JOINS):
            return None
        below = [self._inner_pairs(child) for child in node.children]
        known_pairs = [pairs for pairs in below if pairs is not None]
        if len(known_pairs) < len(below):
            return None
        return [*node.join_keys, *(pair for pairs in known_pairs for pair in pairs)]

    def _codes(self, keys: Sequence[PlanColumn], joined: Joined) -> Places | None:
        """Return the number of each joined row's group, shape (rows,); None: not evaluable."""
        code: Places | None = None
        for key in keys:
            scan_rows = joined.of_scans.get((key.table, key.scan))
            if scan_rows is None:
                return None
            base, sample, rows = scan_rows
            types = tuple((name, column.data_type) for name, column in base.statistics.columns.items())
            value_codes = codes_of(key.name, sample, types, self.dialect)
            if value_codes is None:
                return None
            own = value_codes[rows]
            together = own if code is None else code * (own.max(initial=0) + 1) + own
            code = np.unique(together, return_inverse=True)[1].astype(np.intp)
        return code

    def _chosen_groups(self, base: Scanned, names: Sequence[str]) -> tuple[RowSample, Floats, Floats, float] | None:
        """Return a sample by a key among the grouping columns, which has all rows of a group; None without one.

        With the weights of its rows, 0 for those that filters drop, the number of groups that each one's group
        represents, and the share of all rows that the sample does not cover.
        """
        best: tuple[RowSample, Floats, Floats, float] | None = None
        for name in base.statistics.keys:
            member = Member(base.statistics, tuple(name.split(SEPARATOR)))
            if not set(member.columns) <= set(names):
                continue
            chosen = chosen_rows(member)
            mask = base.filtered.sampled(chosen[0]) if chosen is not None else None
            if chosen is None or mask is None:
                continue
            sample, standing, missing = chosen
            weights = (mask & (standing > 0.0)).astype(np.float64)
            if best is None or np.count_nonzero(weights) > np.count_nonzero(best[1]):
                best = sample, weights, standing, missing
        return best

    def _of_sampled_groups(
        self,
        having: AggregateCondition,
        base: Scanned,
        sample: RowSample,
        weights: Floats,
        names: Sequence[str],
        standing: Floats | None,
        prior: float,
    ) -> float | None:
        types = tuple((name, column.data_type) for name, column in base.statistics.columns.items())
        code = combined_codes(tuple(names), sample, types, self.dialect)
        rows = np.flatnonzero(weights)
        if code is None or not rows.size:
            return None
        _, first, of_rows = np.unique(code[rows], return_index=True, return_inverse=True)
        if standing is not None and first.size < FEWEST_ROWS:
            return None
        groups = int(first.size)
        measures = [measure_of(call, sample, rows, of_rows, groups, base, weights[rows]) for call in having.calls]
        known_measures = [one for one in measures if one is not None]
        if len(known_measures) < len(measures):
            return None
        holds = answers(having, having.test, base, sample, rows[first], known_measures, dialect=self.dialect)
        if holds is None:
            return None
        if standing is None:
            return float(np.count_nonzero(holds)) / groups
        group_weights = standing[rows[first]]
        return with_prior(float(group_weights[holds].sum() / group_weights.sum()), float(groups), prior)
