"""Inner joins of any number of relations, independent of the order in which an engine joins them.

The joins are a graph: relations, and classes of equal columns. A domain of one column applies to all columns of its
class. Messages run along a spanning tree of the graph towards one relation, the root, and multiply its rows; the root
is the relation with the largest effective sample. Two relations that share several classes are compared by all of them
together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from selector.cardinality.base import Base
from selector.cardinality.groups import independent
from selector.cardinality.join_messages import Floats, Key, KeyRows, KeyVector, Message, expected_distinct, scaled
from selector.cardinality.keys.classes import KeyClasses, Origin, origin
from selector.cardinality.keys.unique import UNIQUE_SHARE
from selector.cardinality.matching import Pairs, has_cells, join_message
from selector.cardinality.predicates.domains import Domain
from selector.cardinality.relation import Relation, Scanned
from selector.cardinality.union import Union
from selector.estimate import bounded_rows
from selector.plan import PlanColumn

MOST_BRANCHES = 16  # combinations of branches of joined unions, up to which each is estimated

Place = tuple[int, PlanColumn]  # a column, with the number of its relation
Variable = tuple[Place, ...]  # columns that are equal


class InnerJoins(Relation):
    """Relations and the pairs of columns by which they are joined."""

    def __init__(
        self,
        members: Sequence[Relation],
        pairs: Sequence[tuple[Place, Place]],
        classes: KeyClasses,
        *,
        share: float = 1.0,
    ) -> None:
        """Join the members. share: selectivity of further conditions, 0..1."""
        self._pairs = tuple(pairs)
        self._classes = classes
        self._share = share
        self._members = tuple(members)
        self._variables = self._equal_columns()
        self._first_of = [dict(reversed(variable)) for variable in self._variables]  # by relation: one of its columns
        self._joined: list[set[int]] = [set() for _ in members]  # by relation: those with equal columns
        for variable in self._first_of:
            for number in variable:
                self._joined[number] |= variable.keys()
        self._shared: dict[tuple[int, int], list[tuple[PlanColumn, PlanColumn]]] = {}
        self._members = self._limited()
        self._trees: dict[int, dict[int, list[tuple[int, Pairs]]]] = {}
        self._cycle_selectivity: dict[int, float] = {}
        self._best: int | None = None
        self._distinct: dict[tuple[PlanColumn, ...], float | None] = {}
        root = self._root()
        rows, upper = self._members[root].total(self._arriving(root))
        tree_rows = rows * share * self._cycle_selectivity[root]
        by_branches = self._by_branches()
        self._scale = 1.0 if by_branches is None or tree_rows <= 0.0 else by_branches / tree_rows
        self.rows = bounded_rows(tree_rows if by_branches is None else by_branches)
        self.upper = max(self.rows, bounded_rows(upper))

    @classmethod
    def of(cls, lhs: Relation, rhs: Relation, pairs: Pairs, classes: KeyClasses, *, share: float = 1.0) -> InnerJoins:
        """Join two relations, each of which may be inner joins itself. pairs: (column of lhs, column of rhs)."""
        members: list[Relation] = []
        all_pairs: list[tuple[Place, Place]] = []
        starts = []
        for side in (lhs, rhs):
            at = len(members)
            starts.append(at)
            if isinstance(side, InnerJoins):
                members += side._members
                all_pairs += [((m + at, a), (n + at, b)) for (m, a), (n, b) in side._pairs]
                share *= side._share
            else:
                members.append(side)
        lhs_members, rhs_members = members[: starts[1]], members[starts[1] :]
        all_pairs += [((_number(lhs_members, a), a), (_number(rhs_members, b) + starts[1], b)) for a, b in pairs]
        return cls(members, all_pairs, classes, share=share)

    # ------------------------------------------------------------------ the graph

    def _equal_columns(self) -> list[Variable]:
        leader: dict[tuple[int, Origin], tuple[int, Origin]] = {}
        columns: dict[tuple[int, Origin], PlanColumn] = {}

        def find(at: tuple[int, Origin]) -> tuple[int, Origin]:
            while leader[at] != at:
                at = leader[at]
            return at

        for pair in self._pairs:
            places = [(number, origin(column)) for number, column in pair]
            for place, (_, column) in zip(places, pair, strict=True):
                leader.setdefault(place, place)
                columns[place] = column
            leader[find(places[0])] = find(places[1])
        variables: dict[tuple[int, Origin], list[Place]] = {}
        for place, column in columns.items():
            variables.setdefault(find(place), []).append((place[0], column))
        return [tuple(sorted(variable, key=lambda place: place[0])) for variable in variables.values()]

    def _limited(self) -> tuple[Relation, ...]:
        """Apply the domains of one column of a class to all its columns; none of them is NULL."""
        members = list(self._members)
        for variable in self._variables:
            domains = [domain for number, column in variable if (domain := members[number].allowed(column)) is not None]
            if len({domain.text for domain in domains}) > 1:
                continue
            domain = replace(reduce(Domain.__and__, domains), nulls=False) if domains else None
            for number, column in variable:
                members[number] = members[number].within(column, domain)
        return tuple(members)

    def _tree(self, root: int) -> dict[int, list[tuple[int, Pairs]]]:
        """Return the spanning tree: by relation those below it, with the pairs (its column, theirs)."""
        if root in self._trees:
            return self._trees[root]
        tree: dict[int, list[tuple[int, Pairs]]] = {number: [] for number in range(len(self._members))}
        size = [(member.rows, member.name) for member in self._members]  # so that the order of joins does not matter
        visited, unvisited, cycle_selectivity = [root], [n for n in range(len(self._members)) if n != root], 1.0
        place = {n: (len(self._between(root, n)), size[root], root) for n in unvisited}  # where each would stand by now
        while unvisited:
            below = max(unvisited, key=lambda n: (place[n][0], size[n], place[n][1]))
            above = place[below][2]
            pairs = self._between(above, below)
            tree[above].append((below, pairs))
            for other in visited:
                if other != above and other in self._joined[below]:
                    for mine, theirs in self._between(other, below):
                        if not self._is_implied(theirs, above, below):
                            counts = (self._members[other].ndv(mine), self._members[below].ndv(theirs))
                            cycle_selectivity /= max(1.0, *(count for count in counts if count is not None), 1.0)
            visited.append(below)
            unvisited.remove(below)
            for n in unvisited:
                shared = len(self._between(below, n)) if n in self._joined[below] else 0
                if (shared, size[below]) > place[n][:2]:
                    place[n] = shared, size[below], below
        self._trees[root], self._cycle_selectivity[root] = tree, cycle_selectivity
        return tree

    def _between(self, above: int, below: int) -> list[tuple[PlanColumn, PlanColumn]]:
        if (above, below) not in self._shared:
            self._shared[above, below] = [
                (variable[above], variable[below])
                for variable in self._first_of
                if above in variable and below in variable
            ]
        return self._shared[above, below]

    def _is_implied(self, theirs: PlanColumn, above: int, below: int) -> bool:
        """Tell whether a column equals one of the relation above already, by its class."""
        for variable in self._variables:
            if any(column is theirs for number, column in variable if number == below):
                return any(number == above for number, _ in variable)
        return False

    def _root(self) -> int:
        """Return the number of the relation with the largest effective sample."""
        if self._best is not None:
            return self._best
        partial = [n for n, member in enumerate(self._members) if isinstance(member, Base) and not member.is_whole]
        candidates = partial or [n for n, member in enumerate(self._members) if isinstance(member, Base)][:1] or [0]
        best, most_rows = candidates[0], -1.0
        self._tree(best)
        if len(candidates) > 1:
            most = {n: self._members[n].max_effective_rows for n in candidates}
            for n in sorted(candidates, key=lambda n: (-most[n], self._members[n].name)):
                if most[n] < most_rows:  # the next ones have no more
                    break
                rows = self._members[n].effective_rows(self._arriving(n))
                if rows > most_rows or (rows == most_rows and self._members[n].name < self._members[best].name):
                    best, most_rows = n, rows
        self._tree(best)
        self._best = best
        return best

    def _arriving(self, root: int, messages: Sequence[Message] = ()) -> list[Message]:
        """Return the messages of all other relations to the root. messages: of further joins, to any relation."""
        return self._below(root, self._tree(root), messages)

    def _below(
        self, number: int, tree: dict[int, list[tuple[int, Pairs]]], messages: Sequence[Message]
    ) -> list[Message]:
        own = [message for message in messages if self._members[number].holds(message.key.columns[0])]
        arriving = list(own)
        for below, pairs in tree[number]:
            beyond = self._below(below, tree, messages)
            arriving.append(self._message(number, below, pairs, beyond))
        return arriving

    def _message(self, above: int, below: int, pairs: Pairs, beyond: Sequence[Message]) -> Message:
        side, other = self._members[above], self._members[below]
        # the cached value refers to the objects, so that their ids stay unique
        cache_key = id(side), id(other), tuple(pairs), tuple(map(id, beyond))
        if cache_key not in self._classes.sent:
            self._classes.sent[cache_key] = self._met(side, other, pairs, beyond), side, other, *beyond
        message = self._classes.sent[cache_key][0]
        assert isinstance(message, Message)
        return message

    def _met(self, side: Relation, other: Relation, pairs: Pairs, beyond: Sequence[Message]) -> Message:
        if pairs:
            return join_message(side, other, pairs, self._classes, beyond)
        rows, upper = other.total(beyond)
        factor, match_share, most = np.array([rows]), np.array([min(1.0, rows)]), np.array([max(rows, upper)])
        return Message(Key((), None), factor, match_share, most, null=rows)

    def _by_branches(self) -> float | None:
        """Return the sum over the branches of a union, each joined with all other relations; None without a union."""
        unions = {n: one for n, one in enumerate(self._members) if isinstance(one, Union)}
        if not unions or math.prod(len(union.branches) for union in unions.values()) > MOST_BRANCHES:
            return None
        at, union = next(iter(unions.items()))
        rows = 0.0
        for branch, (part, _) in enumerate(union.branches):
            renamed = [
                tuple((n, union.in_branch(branch, column) if n == at else column) for n, column in pair)
                for pair in self._pairs
            ]
            pairs = [((m, a), (n, b)) for (m, a), (n, b) in renamed if a is not None and b is not None]
            if len(pairs) < len(renamed):
                return None
            members = [part if n == at else member for n, member in enumerate(self._members)]
            rows += InnerJoins(members, pairs, self._classes, share=self._share).rows
        return rows

    # ------------------------------------------------------------------ answers

    @property
    def by_bins(self) -> bool:
        """Tell whether all joins are estimated cell by cell."""
        tree = self._trees[next(iter(self._trees))]
        return all(
            bool(pairs) and self._has_cells(self._members[above], self._members[below], pairs)
            for above, below_it in tree.items()
            for below, pairs in below_it
        )

    def _has_cells(self, side: Relation, other: Relation, pairs: Pairs) -> bool:
        cache_key = has_cells, id(side), id(other), tuple(pairs)  # cached like messages
        if cache_key not in self._classes.sent:
            self._classes.sent[cache_key] = has_cells(side, other, pairs, self._classes), side, other
        return bool(self._classes.sent[cache_key][0])

    @property
    def is_read(self) -> bool:
        """Tell whether all its rows are rows of tables."""
        return all(member.is_read for member in self._members)

    def holds(self, column: PlanColumn) -> bool:
        """Return whether the relation outputs a column."""
        return any(member.holds(column) for member in self._members)

    def _number(self, column: PlanColumn) -> int | None:
        return next((n for n, member in enumerate(self._members) if member.holds(column)), None)

    def vector(self, key: Key, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the rows by a key's cells; messages for other relations go through the joins."""
        number = self._number(key.columns[0])
        if number is None:
            return None
        key_vector = self._members[number].vector(key, self._arriving(number, messages))
        scale = self._share * self._cycle_selectivity[number] * self._scale
        return key_vector if key_vector is None or scale == 1.0 else scaled(key_vector, scale)

    def possible_keys(self, key: Key) -> Floats | None:
        """Return the number of possible keys in each cell of a key."""
        number = self._number(key.columns[0])
        return self._members[number].possible_keys(key) if number is not None else None

    def key_rows(self, key: Key, messages: Sequence[Message] = ()) -> KeyRows | None:
        """Return the rows of its sample by a key."""
        number = self._number(key.columns[0])
        return self._members[number].key_rows(key, self._arriving(number, messages)) if number is not None else None

    def effective_rows(self, messages: Sequence[Message]) -> float:
        """Return the effective sample size behind ``total``."""
        root = self._root()
        return self._members[root].effective_rows(self._arriving(root, messages))

    def total(self, messages: Sequence[Message]) -> tuple[float, float]:
        """Return rows and their upper bound, after the joins that sent the messages."""
        root = self._root()
        rows, upper = self._members[root].total(self._arriving(root, messages))
        rows *= self._share * self._cycle_selectivity[root] * self._scale
        return rows, max(rows, upper)

    def ndv(self, column: PlanColumn) -> float | None:
        """Return the NDV of a column behind the joins."""
        return self.distinct([column])

    def domain(self, column: PlanColumn) -> float | None:
        """Return the NDV of a column before joins and filters on other columns."""
        number = self._number(column)
        return self._members[number].domain(column) if number is not None else None

    def present(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is not NULL before joins."""
        number = self._number(column)
        return self._members[number].present(column) if number is not None else 1.0

    def nulls(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is NULL: 0 for a join key."""
        if any(origin(column) == origin(joined) for variable in self._variables for _, joined in variable):
            return 0.0
        number = self._number(column)
        return self._members[number].nulls(column) if number is not None else 0.0

    def sampled(self, column: PlanColumn, key: tuple[str, ...] = ()) -> tuple[Scanned, Floats] | None:
        """Return the sampled rows that a column was read from, with the weights that the joins give them."""
        number = self._number(column)
        member = self._members[number] if number is not None else None
        if number is None or member is None:
            return None
        if isinstance(member, Base):
            return member.weighted(self._arriving(number), key)
        return member.sampled(column, key)

    def combinations(self, columns: Sequence[PlanColumn]) -> float:
        """Return the number of combinations of columns that are possible, before filters."""
        by_member = self._by_member(columns)
        return max(1.0, math.prod(self._members[number].combinations(own) for number, own in by_member.items()))

    def distinct(self, columns: Sequence[PlanColumn], messages: Sequence[Message] = ()) -> float | None:
        """Return the number of combinations behind the joins: the minimum over sets of equal or determining columns."""
        if not messages:
            cache_key = tuple(columns)
            if cache_key not in self._distinct:
                self._distinct[cache_key] = self._least(columns, ())
            return self._distinct[cache_key]
        return self._least(columns, messages)

    def _least(self, columns: Sequence[PlanColumn], messages: Sequence[Message]) -> float | None:
        counts = [count for same in self._same(columns) if (count := self._combined(same, messages)) is not None]
        return min(counts, default=None)

    def _same(self, columns: Sequence[PlanColumn]) -> Iterator[Sequence[PlanColumn]]:
        """Yield the columns, and equal or determining columns of one relation in their place.

        Columns of a table are determined by its key, which the relations joined with it have as well.
        """
        yield columns
        seen = {tuple(columns)}
        for number in range(len(self._members)):
            other: dict[Origin, PlanColumn] = {}
            for variable in self._variables:
                mine = next((column for n, column in variable if n == number), None)
                if mine is not None:
                    other |= {origin(column): mine for _, column in variable}
            changed = tuple(dict.fromkeys(other.get(origin(column), column) for column in columns))
            if changed not in seen:
                seen.add(changed)
                yield changed
            determining = tuple(
                dict.fromkeys(determinant for column in columns for determinant in self._determining(number, column))
            )
            if determining not in seen:
                seen.add(determining)
                yield determining

    def _determining(self, number: int, column: PlanColumn) -> Sequence[PlanColumn]:
        """Return the foreign keys in a relation that determine a column; the column itself without any."""
        holder = self._number(column)
        pairs = self._between(number, holder) if holder is not None and holder != number else []
        if holder is None or not pairs:
            return (column,)
        member = self._members[holder]
        unique = isinstance(member, Base) and self._is_unique(member, [theirs for _, theirs in pairs])
        return [mine for mine, _ in pairs] if unique else (column,)

    def _is_unique(self, base: Base, columns: Sequence[PlanColumn]) -> bool:
        return base.combinations(columns) >= UNIQUE_SHARE * base.statistics.rows

    def _combined(self, columns: Sequence[PlanColumn], messages: Sequence[Message]) -> float | None:
        counts = []
        rows = self.total(messages)[0] if messages else self.rows
        for number, own in self._by_member(columns).items():
            member = self._members[number]
            distinct = member.distinct(own, self._arriving(number, messages))
            if distinct is None:
                return None
            scale = self._share * self._cycle_selectivity[number]
            before = rows / scale if scale > 0.0 else rows
            counts.append(float(expected_distinct(distinct, max(distinct, before), scale)) if scale < 1.0 else distinct)
        if not counts:
            return None
        return max(1.0, min(independent(counts, rows) if len(counts) > 1 else counts[0], max(rows, 1.0)))

    def _by_member(self, columns: Sequence[PlanColumn]) -> dict[int, list[PlanColumn]]:
        by_member: dict[int, list[PlanColumn]] = {}
        for column in columns:
            number = self._number(column)
            if number is not None:
                by_member.setdefault(number, []).append(column)
        return by_member

    def base(self, column: PlanColumn) -> Scanned | None:
        """Return the filtered scan that a column was read from."""
        number = self._number(column)
        return self._members[number].base(column) if number is not None else None

    def bases(self, columns: Sequence[PlanColumn]) -> list[tuple[Scanned, tuple[PlanColumn, ...]]] | None:
        """Return each scan that has all the columns."""
        numbers = {self._number(column) for column in columns}
        number = numbers.pop() if len(numbers) == 1 else None
        return self._members[number].bases(columns) if number is not None else None

    def allowed(self, column: PlanColumn) -> Domain | None:
        """Return the domain of a column behind the filters; None if the filters are no domain."""
        number = self._number(column)
        return self._members[number].allowed(column) if number is not None else None

    def within(self, column: PlanColumn, domain: Domain | None) -> Relation:
        """Return the joined rows whose column lies in a domain, or is not NULL."""
        number = self._number(column)
        if number is None:
            return self
        limited = self._members[number].within(column, domain)
        if limited is self._members[number]:
            return self
        members = [limited if n == number else member for n, member in enumerate(self._members)]
        return InnerJoins(members, self._pairs, self._classes, share=self._share)

    @property
    def marked(self) -> tuple[float, ...]:
        """Return the share of rows with a match in each mark join."""
        return tuple(share for member in self._members for share in member.marked)

    def counts_combinations(self, columns: Sequence[PlanColumn]) -> bool:
        """Return whether the combinations come from a sample in every relation."""
        return all(self._members[n].counts_combinations(own) for n, own in self._by_member(columns).items())


def _number(members: Sequence[Relation], column: PlanColumn) -> int:
    """Return the number of the relation that outputs a column; 0 for a computed column."""
    return next((number for number, member in enumerate(members) if member.holds(column)), 0)
