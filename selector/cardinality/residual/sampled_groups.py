"""What conditions on aggregates keep of the groups that have them, where samples hold all rows of a group.

They do so in tables that are sampled as a whole, in their joins, and among rows that were chosen by a key that is part
of the grouping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sqlglot import exp

from selector.cardinality.groups import FEWEST_ROWS, HavingCondition, Sizes, codes_of, codes_together
from selector.cardinality.join_messages import Floats
from selector.cardinality.keys.classes import Member, Places
from selector.cardinality.predicates.conditions import Condition
from selector.cardinality.relation import Relation, Scanned
from selector.cardinality.residual.asked import Asked, answers, with_prior
from selector.cardinality.residual.joined import Joined, is_whole, joined_rows
from selector.cardinality.residual.measured import chosen_rows, measure_of, measured
from selector.cardinality.residual.traced import Tracer, is_in_parts
from selector.join_keys import SEPARATOR
from selector.plan import JoinType, Operator, PlanColumn, PlanNode
from selector.row_sample import RowSample

_PASSED = (Operator.PROJECT, Operator.FILTER)
_JOINS = (Operator.HASH_JOIN, Operator.NESTED_LOOP_JOIN)


@dataclass(frozen=True, slots=True)
class SampledGroups:
    """Answers conditions on groups of one plan. relations: what each of its nodes puts out, by identity."""

    tracer: Tracer
    relations: Mapping[int, Relation]
    dialect: str

    def kept(self, asked: Asked, prior: float) -> float | None:
        """Return the share of groups for which a condition holds, as those tell of which all rows were sampled."""
        below, keys = asked.grouping.children[0], list(asked.grouping.group_keys)
        source, scans = self.relations.get(id(below)), self.tracer.scans(below, through=is_in_parts(asked.grouping))
        if len(scans) > 1:
            return self._of_joined_groups(asked, source, scans)
        if source is None or not scans:
            return None
        plain = next((key for key in keys if key.table is not None), None)
        found = source.sampled(plain) if plain is not None else None
        if found is None and len(scans) == 1:
            found = source.sampled(scans[0].columns[0]) if scans[0].columns else None
        if found is None:
            return None
        base, weights = found
        names = []
        for key in keys:
            place = (key.table, key.scan)
            if key.table is not None and plain is not None and place != (plain.table, plain.scan):
                return None
            names.append(key.name)
        if is_whole(base):
            sample = base.statistics.sample
            assert sample is not None
            return self._of_sampled_groups(asked, base, sample, weights, names, None, prior)
        by_key = self._by_key(asked, base, names, prior)
        if by_key is not None:
            return by_key
        chosen = self._chosen_groups(base, names)
        if chosen is None:
            return None
        sample, weights, standing, missing = chosen
        told = self._of_sampled_groups(asked, base, sample, weights, names, standing, prior)
        return None if told is None else (1.0 - missing) * told + missing * prior

    def _by_key(self, asked: Asked, base: Scanned, names: Sequence[str], prior: float) -> float | None:
        """Return the same of groups by a key: popular ones are known, the chosen ones stand for all others."""
        key = next((key for key in base.statistics.keys if set(key.split(SEPARATOR)) == set(names)), None)
        every = self.relations.get(id(asked.grouping))
        if key is None or every is None or asked.columns:
            return None
        known = measured(asked.calls, base, tuple(key.split(SEPARATOR)), dialect=self.dialect)
        if known is None or known.bins is None:
            return None
        places, popular = known.places[known.places >= 0], known.popular[known.places >= 0]
        chosen = int(np.count_nonzero(~popular))
        measures = [one.at(places) for one in known.measures]
        holds = answers(asked, asked.test, base, RowSample(0, 1.0, {}), places, measures, dialect=self.dialect)
        if holds is None or chosen < FEWEST_ROWS:
            return None
        rare = chosen / known.share
        kept = with_prior(float(np.count_nonzero(holds & ~popular)) / chosen, float(chosen), prior) * rare
        kept += float(np.count_nonzero(holds & popular))
        return min(1.0, kept / max(every.rows, 1e-9))

    def _of_joined_groups(self, asked: Asked, source: Relation | None, scans: Sequence[PlanNode]) -> float | None:
        """Return the same of groups of joined rows, as far as samples can be joined."""
        pairs = self._inner_pairs(asked.grouping.children[0], in_parts=is_in_parts(asked.grouping))
        groups = self.relations.get(id(asked.grouping))
        bases = {
            (scan.table, scan.scan): source.base(scan.scanned[0]) if source is not None and scan.scanned else None
            for scan in scans
        }
        known = {place: base for place, base in bases.items() if base is not None}
        if pairs is None or source is None or groups is None or len(known) < len(bases) or asked.columns:
            return None
        joined = joined_rows(known, pairs)
        code = self._codes(asked.grouping.group_keys, joined) if joined is not None else None
        if joined is None or code is None or not code.size:
            return None
        held = np.bincount(code)
        if joined.share < 1.0:
            having = HavingCondition.read(Condition(asked.spelled, frozenset(), self.dialect))
            number = having.number(self.dialect) if having is not None else None
            if having is None or number is None or having.kind is not exp.Count or having.argument is not None:
                return None
            if code.size < FEWEST_ROWS or len(asked.grouping.group_keys) < 2:
                return None  # key statistics tell more of the sizes of one key's groups
            return having.counted(Sizes.promised(held, joined.share, groups.rows, source.rows), number)
        measures = []
        base = next(iter(known.values()))
        for call in asked.calls:
            names = {column.name.lower() for column in call.find_all(exp.Column)}
            own = [one for one in joined.of_scans.values() if names <= {name.lower() for name in one[1].columns}]
            if not own or (names and len(own) > 1):
                return None
            measures.append(
                measure_of(
                    call, own[0][1], own[0][2], code, int(held.size), own[0][0], np.ones(code.size), self.dialect
                )
            )
        there = [one for one in measures if one is not None]
        if len(there) < len(measures):
            return None
        places = np.zeros(held.size, dtype=np.intp)
        sample = base.statistics.sample
        assert sample is not None
        holds = answers(asked, asked.test, base, sample, places, there, dialect=self.dialect)
        return None if holds is None else min(1.0, float(np.count_nonzero(holds)) / max(groups.rows, 1e-9))

    def _inner_pairs(self, node: PlanNode, *, in_parts: bool) -> list[tuple[PlanColumn, PlanColumn]] | None:
        """Return the columns that inner joins compare; None if something else is done to rows than that."""
        if node.operator is Operator.SCAN:
            return []
        if node.operator in _JOINS and (node.join_type is not JoinType.INNER or node.predicates):
            return None
        if node.operator is Operator.FILTER and not isinstance(self.relations.get(id(node)), Scanned):
            return None
        passed = (*_PASSED, *_JOINS, Operator.AGGREGATE) if in_parts else (*_PASSED, *_JOINS)
        if node.operator not in passed:
            return None
        below = [self._inner_pairs(child, in_parts=in_parts) for child in node.children]
        known = [pairs for pairs in below if pairs is not None]
        if len(known) < len(below):
            return None
        return [*node.join_keys, *(pair for pairs in known for pair in pairs)]

    def _codes(self, keys: Sequence[PlanColumn], joined: Joined) -> Places | None:
        """Return which joined rows are in one group, shape (rows,)."""
        code: Places | None = None
        for key in keys:
            found = joined.of_scans.get((key.table, key.scan))
            if found is None:
                return None
            base, sample, rows = found
            types = tuple((name, column.data_type) for name, column in base.statistics.columns.items())
            each = codes_of(key.name, sample, types, self.dialect)
            if each is None:
                return None
            own = each[rows]
            together = own if code is None else code * (own.max(initial=0) + 1) + own
            code = np.unique(together, return_inverse=True)[1].astype(np.intp)
        return code

    def _chosen_groups(self, base: Scanned, names: Sequence[str]) -> tuple[RowSample, Floats, Floats, float] | None:
        """Return rows that were chosen by a key among the columns of a grouping, so that all rows of a group are there.

        With the weights of the rows, 0 for those that filters drop, how many groups each of theirs stands for, and
        which share of all rows has popular keys that were not chosen.
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
        asked: Asked,
        base: Scanned,
        sample: RowSample,
        weights: Floats,
        names: Sequence[str],
        standing: Floats | None,
        prior: float,
    ) -> float | None:
        types = tuple((name, column.data_type) for name, column in base.statistics.columns.items())
        code = codes_together(tuple(names), sample, types, self.dialect)
        rows = np.flatnonzero(weights)
        if code is None or not rows.size:
            return None
        _, first, of_rows = np.unique(code[rows], return_index=True, return_inverse=True)
        if standing is not None and first.size < FEWEST_ROWS:
            return None
        groups = int(first.size)
        measures = [
            measure_of(call, sample, rows, of_rows, groups, base, weights[rows], self.dialect) for call in asked.calls
        ]
        known = [one for one in measures if one is not None]
        if len(known) < len(measures):
            return None
        holds = answers(asked, asked.test, base, sample, rows[first], known, dialect=self.dialect)
        if holds is None:
            return None
        if standing is None:
            return float(np.count_nonzero(holds)) / groups
        each = standing[rows[first]]
        return with_prior(float(each[holds].sum() / each.sum()), float(groups), prior)
