"""Selectivity of predicates on one table, from the best statistics for each of them.

Conjuncts on one column are one domain, whose share comes from common values, the histogram, or minimum, maximum and
NDV (the paper's Eqs. (2) and (3)). The correlation of several columns is counted on the row sample; with few surviving
sampled rows, or without a sample, it is exponential back-off: the most selective predicate counts in full, each further
one with half the weight of the one before. A predicate that is no domain is counted on the sample. Without any
statistic, its selectivity is guessed from its form, or is 1; it is reported as unanswered.

It is long because each statistic has its own formula.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from selector.cardinality.predicates.conditions import Condition, domain_of, parsed, truth_of
from selector.cardinality.predicates.domain_selectivity import share
from selector.cardinality.predicates.domains import Domain
from selector.cardinality.predicates.evaluate import constant, truth
from selector.cardinality.predicates.vectors import Bools, every_row
from selector.row_sample import RowSample, SampleColumn
from selector.statistics import MOST_TEXT_BYTES, TEXT_KEY_BYTES, ColumnStatistics, TableStatistics

PRIOR_HITS = 2.0  # weight of an estimate without the sample, in sampled rows
GUESSED_HITS = 0.5  # weight of a guess, in sampled rows
LEAST_SHAPE = 0.3  # least weight of a domain that cuts a cell in two, in sampled rows
EQUAL_SHARE = 0.02  # guess for expression = constant
RANGE_SHARE = 1 / 3  # guess for expression < constant, and other ranges
PATTERN_SHARE = 0.1  # guess for LIKE and other patterns
FEW_STRETCHES = 4  # of a domain, up to which codes of rows are compared with their ends
OTHER_SHARE = 0.5  # guess for any other predicate on known columns
MOST_VALUES = 256  # of a domain of single values, up to which conditions are evaluated on each
COUNTED_SHARE = 0.9999  # of a column's rows, from which on its common values are all its values
_DOMAINS: dict[type[exp.Expr], float] = {  # number of values of a part of a date
    exp.Quarter: 4.0,
    exp.Month: 12.0,
    exp.Day: 31.0,
    exp.DayOfMonth: 31.0,
    exp.DayOfWeek: 7.0,
    exp.DayOfYear: 366.0,
    exp.Hour: 24.0,
    exp.Minute: 60.0,
    exp.Second: 60.0,
}

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Selectivity:
    """Selectivity, 0..1, and the statistics that it rests on.

    unanswered: predicates without a statistic, as SQL.
    """

    share: float
    basis: str = ""
    unanswered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Part:
    """Selectivity of conjuncts that are estimated together.

    column, domain: of conjuncts on one column that are one domain; else None.
    """

    share: float
    basis: str
    conditions: tuple[Condition, ...] = ()
    column: ColumnStatistics | None = None
    domain: Domain | None = None
    unanswered: tuple[str, ...] = ()

    @property
    def is_asked(self) -> bool:
        """Tell whether it depends on columns, so that a sample may count it."""
        return bool(self.conditions) or self.domain is not None


@dataclass(frozen=True, slots=True, eq=False)
class Filtered(Selectivity):
    """Filter of a table, with its selectivity.

    domains: by column, the intersection of its conjuncts' domains.
    """

    domains: Mapping[str, Domain] = field(default_factory=dict)
    _parts: tuple[_Part, ...] = ()
    _statistics: TableStatistics | None = None

    def is_only_of(self, columns: Collection[str]) -> bool:
        """Return whether all selective conjuncts are domains of some columns."""
        return all(
            part.domain is not None and part.column is not None and part.column.name in columns
            for part in self._parts
            if part.share < 1.0
        )

    def sampled(self, other: RowSample | None = None) -> Bools | None:
        """Return True for each surviving row of the sample, shape (rows,); None: not evaluable, or no sample.

        other: another sample of the table; None: the row sample of its statistics.
        """
        statistics = self._statistics
        sample = other if other is not None else statistics.sample if statistics is not None else None
        if statistics is None or sample is None:
            return None
        combined_mask: Bools | None = None
        for part in self._parts:
            if part.share < 1.0:
                mask = _mask_of(part, statistics, sample) if part.is_asked else None
                if mask is None:
                    return None
                combined_mask = mask if combined_mask is None else combined_mask & mask
        return combined_mask if combined_mask is not None else every_row(sample.rows)[0]


def filter_of(
    predicates: Sequence[str],
    statistics: TableStatistics | None,
    *,
    dialect: str,
    implied: Mapping[str, Domain] = MappingProxyType({}),
) -> Filtered:
    """Return the filter of predicates (SQL texts, ANDed) on a table. statistics: None: not collected.

    implied: domains of columns that follow from joins with filtered columns.
    """
    parts: list[_Part] = []
    by_column: dict[str, list[tuple[Condition | None, Domain]]] = {
        name: [(None, domain)] for name, domain in implied.items()
    }
    others: list[tuple[Condition, ColumnStatistics | None]] = []
    for text in predicates:
        conditions = parsed(text, dialect)
        if conditions is None:
            parts.append(_unanswered(text))
            continue
        for condition in conditions:
            column = _only_column(condition, statistics)
            domain = _domain(condition, column, statistics)
            if column is not None and domain is not None:
                by_column.setdefault(column.name, []).append((condition, domain))
            else:
                others.append((condition, column))
    domains = {
        name: Domain.all_of([domain for _, domain in column_conditions])
        for name, column_conditions in by_column.items()
    }
    for condition, column in others:
        domain = _among(condition, column, domains.get(column.name)) if column is not None else None
        if column is None or domain is None:
            parts.append(_other(condition, statistics))
        else:
            by_column[column.name].append((condition, domain))
            domains[column.name] &= domain
    for name, column_conditions in by_column.items():
        assert statistics is not None
        column = statistics.columns[name]
        conditions_of = tuple(condition for condition, _ in column_conditions if condition is not None)
        parts.append(_one_column(column, domains[name], conditions_of, statistics))
    joint_share = _together(parts, statistics)
    basis = "; ".join(dict.fromkeys(part.basis for part in parts if part.basis))
    unanswered = tuple(text for part in parts for text in part.unanswered)
    return Filtered(joint_share, basis, unanswered, domains, tuple(parts), statistics)


def _only_column(condition: Condition, statistics: TableStatistics | None) -> ColumnStatistics | None:
    if statistics is None or len(condition.columns) != 1:
        return None
    return _column(next(iter(condition.columns)), statistics)


@lru_cache(maxsize=1024)
def _column(name: str, statistics: TableStatistics) -> ColumnStatistics | None:
    exact_match = statistics.columns.get(name)
    if exact_match is not None:
        return exact_match
    return next((column for key, column in statistics.columns.items() if key.lower() == name.lower()), None)


def _domain(condition: Condition, column: ColumnStatistics | None, statistics: TableStatistics | None) -> Domain | None:
    """Return the domain of a condition on a column; if all values are common ones, any condition has a domain."""
    if column is None or statistics is None:
        return None
    domain = domain_of(condition, column.data_type)
    longest = column.maximum_length or MOST_TEXT_BYTES
    if domain is not None and longest >= MOST_TEXT_BYTES and domain.names_text_of(MOST_TEXT_BYTES):
        return None  # other strings have the same prefix
    if domain is not None or column.common is None:
        return domain
    if float(column.common.rows.sum()) < COUNTED_SHARE * (statistics.rows - column.nulls):
        return None
    return _domain_of_values(condition, column)


def _among(condition: Condition, column: ColumnStatistics, domain: Domain | None) -> Domain | None:
    """Return the values that a condition keeps of a domain of few single values; None for any other domain."""
    values = domain.values if domain is not None else None
    if domain is None or values is None or len(values) > MOST_VALUES:
        return None
    candidates: NDArray[Any] = np.array(values, dtype=np.bytes_ if domain.text else np.float64)
    return _kept_values(condition, column, candidates)


@lru_cache(maxsize=1024)
def _domain_of_values(condition: Condition, column: ColumnStatistics) -> Domain | None:
    """Return the domain of the common values, and NULL, for which a condition holds."""
    assert column.common is not None
    return _kept_values(condition, column, column.common.values)


def _kept_values(condition: Condition, column: ColumnStatistics, values: NDArray[Any]) -> Domain | None:
    """Return the domain of the given values, and NULL, for which a condition holds; None: not evaluable."""
    is_text = values.dtype.kind == "S"
    padded = np.zeros(values.size + 1, dtype=object if is_text else np.float64)
    padded[:-1] = [key.decode("utf-8", "replace") for key in values.tolist()] if is_text else values
    sample_column = SampleColumn.of(padded, np.arange(padded.size) == values.size)
    rows = RowSample(padded.size, 1.0, {column.name: sample_column})
    mask = truth(condition.expression, rows, {column.name: column.data_type}, dialect=condition.dialect)
    if mask is None:
        return None
    domain = Domain.one_of(values[mask[:-1]].tolist(), text=is_text)
    return replace(domain, nulls=bool(mask[-1]))


def _unanswered(text: str) -> _Part:
    return _Part(1.0, f"no statistic answers {text}", unanswered=(text,))


@lru_cache(maxsize=1024)
def _one_column(
    column: ColumnStatistics, domain: Domain, conditions: tuple[Condition, ...], statistics: TableStatistics
) -> _Part:
    """Return the selectivity of one column's conjuncts."""
    column_share = share(domain, column, statistics.rows, complete=statistics.share >= 1.0)
    if domain.names_text_of(TEXT_KEY_BYTES) and statistics.sample is not None:
        prior = column_share.share if column_share else 1.0
        return _of_long_texts(_Part(prior, "", conditions, column, domain), statistics)
    if column_share is not None and (column.histogram is not None or len(conditions) == 1):
        part = _Part(column_share.share, column_share.basis, conditions, column, domain)
        return _with_sample(part, column_share.unsure, statistics) if column_share.unsure > 0.0 else part
    guesses = [_other(condition, statistics) for condition in conditions]
    if column_share is None and not guesses:
        guesses = [_Part(1.0, "")]
    if column_share is not None:
        guesses.append(_Part(column_share.share, column_share.basis))
    least = min(guesses, key=lambda part: part.share)
    return replace(least, conditions=conditions, column=column, domain=domain)


def _of_long_texts(part: _Part, statistics: TableStatistics) -> _Part:
    """Return the selectivity of a domain with strings that are longer than the prefixes in the histogram.

    The sample has whole strings. The prior assumes that each string has as many rows as any value.
    """
    column, domain = part.column, part.domain
    assert column is not None
    assert domain is not None
    present = 1.0 - min(1.0, column.nulls / max(1, statistics.rows))
    kept_values, excluded_values = domain.values, (~domain).values
    guess = part.share
    if kept_values is not None or excluded_values is not None:
        share_of_named = min(
            1.0, len(kept_values if kept_values is not None else excluded_values or ()) / max(1.0, column.ndv)
        )
        share_of_kept = share_of_named if kept_values is not None else 1.0 - share_of_named
        guess = present * share_of_kept + (1.0 - present) * domain.nulls
    mask = _mask_of(part, statistics, statistics.sample) if statistics.sample is not None else None
    if mask is None:
        return replace(part, share=guess, basis=f"NDV of {column.name}")
    hits = float(np.count_nonzero(mask))
    counted = _counted(hits, guess, statistics, PRIOR_HITS)
    return replace(part, share=counted, basis=f"sample of {column.name}")


def _with_sample(part: _Part, unsure: float, statistics: TableStatistics) -> _Part:
    """Return the selectivity of a histogram and the sample combined, weighted by their precision.

    The rows of a cut cell may be on either side: a uniform error has a twelfth of its square as variance. The prior is
    a gamma distribution with this variance, which the sampled rows update.
    """
    sample = statistics.sample
    mask = _mask_of(part, statistics, sample) if sample is not None else None
    if mask is None or sample is None or not sample.rows or part.share <= 0.0:
        return part
    shape = max(LEAST_SHAPE, 12.0 * (part.share / unsure) ** 2)
    sampled_share = (float(np.count_nonzero(mask)) + shape) / (sample.rows + shape / part.share)
    return replace(part, share=min(1.0, sampled_share))


@lru_cache(maxsize=1024)
def _other(condition: Condition, statistics: TableStatistics | None) -> _Part:
    """Return the selectivity of a condition that is no domain: counted on the sample, or guessed."""
    holds = truth_of(condition)
    if holds is not None:
        return _Part(1.0 if holds else 0.0, "constant")
    columns = [_column(name, statistics) for name in sorted(condition.columns)] if statistics is not None else []
    if statistics is None or not columns or any(column is None for column in columns):
        return _unanswered(condition.text)
    guess, answered = _guess(condition, statistics)
    mask = _mask(condition, statistics, statistics.sample)
    names = ", ".join(column.name for column in columns if column is not None)
    if mask is not None and statistics.sample is not None:
        hits = float(np.count_nonzero(mask))
        sampled_share = _counted(hits, guess, statistics, PRIOR_HITS if answered else GUESSED_HITS)
        return _Part(sampled_share, f"sample of {names}", (condition,))
    if answered:
        return _Part(guess, f"statistics of {names}", (condition,))
    text = condition.text
    return _Part(guess, f"no statistic answers {text}", (condition,), unanswered=(text,))


def _guess(condition: Condition, statistics: TableStatistics) -> tuple[float, bool]:
    """Return the selectivity of a condition without the sample, and whether it rests on statistics alone."""
    column = _only_column(condition, statistics)
    domain = _domain(condition, column, statistics)
    if column is not None and domain is not None:
        domain_share = share(domain, column, statistics.rows, complete=statistics.share >= 1.0)
        if domain_share is not None:
            return domain_share.share, True
    if condition.alternatives:
        dropped, answered = 1.0, True
        for branch in condition.alternatives:
            parts = [_guess(part, statistics) for part in branch]
            dropped *= 1.0 - _backed_off([branch_share for branch_share, _ in parts])
            answered = answered and all(is_answered for _, is_answered in parts)
        return 1.0 - dropped, answered
    expression = condition.expression
    negated = isinstance(expression, exp.Not)
    if negated:
        expression = expression.this.unnest()
    present = math.prod(
        1.0 - min(1.0, stats.nulls / statistics.rows) if stats is not None and statistics.rows else 1.0
        for stats in (_column(name, statistics) for name in condition.columns)
    )
    branch_share, answered = _guess_of_form(expression, statistics, condition.dialect)
    return present * (1.0 - branch_share if negated else branch_share), answered


def _guess_of_form(expression: exp.Expr, statistics: TableStatistics, dialect: str) -> tuple[float, bool]:
    """Return the selectivity of a predicate among rows without NULLs by its form, and whether statistics gave it."""
    lhs, rhs = expression.this, expression.args.get("expression")
    match expression:
        case exp.EQ() | exp.NEQ() | exp.NullSafeEQ() | exp.NullSafeNEQ():
            equal, answered = _equal(lhs, rhs, statistics, dialect)
            return (equal if isinstance(expression, exp.EQ | exp.NullSafeEQ) else 1.0 - equal), answered
        case exp.LT() | exp.LTE() | exp.GT() | exp.GTE() | exp.Between():
            return RANGE_SHARE, False
        case exp.In():
            equal, _ = _equal(lhs, exp.Null(), statistics, dialect)
            return min(OTHER_SHARE, max(1, len(expression.expressions)) * equal), False
        case exp.Like() | exp.ILike() | exp.Escape():
            return (1.0 - PATTERN_SHARE if expression.args.get("negate") else PATTERN_SHARE), False
        case exp.RegexpLike() | exp.RegexpILike() | exp.RegexpFullMatch() | exp.SimilarTo():
            return PATTERN_SHARE, False
        case exp.StartsWith() | exp.EndsWith() | exp.Contains() | exp.Anonymous():
            return PATTERN_SHARE, False
    return OTHER_SHARE, False


def _equal(lhs: exp.Expr, rhs: exp.Expr | None, statistics: TableStatistics, dialect: str) -> tuple[float, bool]:
    """Return the selectivity of an equality, 1 / max(NDV), and whether statistics gave the NDV."""
    lhs, rhs = lhs.unnest(), rhs.unnest() if rhs is not None else exp.Null()
    columns = [_column(side.name, statistics) for side in (lhs, rhs) if isinstance(side, exp.Column)]
    if len(columns) == 2:
        most = max((column.ndv for column in columns if column is not None), default=0.0)
        return (1.0 / most, True) if most >= 1.0 else (EQUAL_SHARE, False)
    if len(columns) == 1 and columns[0] is not None and columns[0].ndv >= 1.0:
        return 1.0 / columns[0].ndv, True
    expression = rhs if constant(lhs, dialect=dialect) is not None else lhs
    if type(expression) in _DOMAINS:
        return 1.0 / _DOMAINS[type(expression)], False
    if isinstance(expression, exp.Mod):
        by = constant(expression.expression, dialect=dialect)
        values = by.item() if by is not None and by.kind.is_number and by.is_constant else None
        return (1.0 / values if values is not None and values >= 1.0 else EQUAL_SHARE), False
    return EQUAL_SHARE, False


def _together(parts: Sequence[_Part], statistics: TableStatistics | None) -> float:
    """Return the joint selectivity of all parts."""
    if any(part.share <= 0.0 for part in parts):
        return 0.0
    counted: list[_Part] = []
    masks: list[Bools] = []
    rest = [part for part in parts if not part.is_asked]
    for part in parts:
        sample = statistics.sample if statistics is not None and part.is_asked else None
        mask = _mask_of(part, statistics, sample) if statistics is not None and sample is not None else None
        if mask is not None:
            counted.append(part)
            masks.append(mask)
        elif part.is_asked:
            rest.append(part)
    shares = [part.share for part in rest]
    if counted and statistics is not None:
        shares.append(_jointly(counted, masks, statistics))
    return _backed_off(shares)


def _jointly(parts: Sequence[_Part], masks: Sequence[Bools], statistics: TableStatistics) -> float:
    """Return the joint selectivity of parts by the sample.

    A ratio estimator: the share of the most selective part is known, and the sample gives the share of these rows that
    the other parts keep, so that the sampling error of the first one does not count.
    """
    alone = [part.share for part in parts]
    whole = _is_whole(statistics)
    if len(parts) == 1 and not whole:
        return alone[0]
    hits = float(np.count_nonzero(reduce(np.logical_and, masks)))
    if whole:
        return hits / len(masks[0]) if len(masks[0]) else 0.0
    least = min(range(len(alone)), key=alone.__getitem__)
    first = float(np.count_nonzero(masks[least]))
    prior = PRIOR_HITS * _backed_off(alone) / max(alone[least], 1e-12)
    joint_share = alone[least] * (hits + prior) / (first + PRIOR_HITS)
    return min(max(joint_share, 1.0 - sum(1.0 - part_share for part_share in alone)), *alone)


def _counted(hits: float, prior: float, statistics: TableStatistics, worth: float) -> float:
    """Return the selectivity by sampled rows and a prior.

    A rate with a gamma prior. hits: sampled rows that pass. prior: its mean. worth: its shape, in sampled rows.
    """
    assert statistics.sample is not None
    if _is_whole(statistics):
        return hits / statistics.sample.rows
    if prior <= 0.0:
        prior = 1.0 / max(1.0, float(statistics.rows))
    return min(1.0, (hits + worth) / (statistics.sample.rows + worth / prior))


def _is_whole(statistics: TableStatistics) -> bool:
    """Return whether the sample holds all of a table's rows."""
    sample = statistics.sample
    return sample is not None and sample.share >= 1.0 and sample.rows == statistics.rows > 0


def _backed_off(shares: Sequence[float], weight: float = 0.5) -> float:
    """Return the product of shares, ascending, each with ``weight`` times the exponent of the one before."""
    return math.prod(math.pow(kept_share, weight**position) for position, kept_share in enumerate(sorted(shares)))


def _mask_of(part: _Part, statistics: TableStatistics, sample: RowSample) -> Bools | None:
    inside: Bools | None = None
    if part.column is not None and part.domain is not None:
        column = sample.columns.get(part.column.name)
        inside = _in_domain(part.domain, column) if column is not None else None
        if inside is not None and not (part.domain.text and part.conditions):
            return inside
    masks = [_mask(condition, statistics, sample) for condition in part.conditions]
    sampled_masks = [mask for mask in masks if mask is not None]
    if not sampled_masks or len(sampled_masks) < len(masks):
        return None
    return reduce(np.logical_and, sampled_masks if inside is None else [inside, *sampled_masks])


def _mask(condition: Condition, statistics: TableStatistics, sample: RowSample | None) -> Bools | None:
    return _mask_on(condition, sample, statistics) if sample is not None and sample.rows else None


@lru_cache(maxsize=1024)
def _in_domain(domain: Domain, column: SampleColumn) -> Bools:
    """Return True for each sampled row in a domain, shape (rows,)."""
    codes, last = column.codes, column.values.size
    stretches = domain.stretches(column.values)
    if domain.nulls:
        stretches.append((last, last + 1))
    if not stretches or len(stretches) > FEW_STRETCHES:
        is_inside = np.zeros(last + 1, dtype=np.bool_)
        for low, high in stretches:
            is_inside[low:high] = True
        return is_inside[codes]
    return reduce(np.logical_or, (_between(codes, low, high, last) for low, high in stretches))


def _between(codes: NDArray[Any], low: int, high: int, last: int) -> Bools:
    """Return True for each code in low..high - 1, shape as ``codes``. last: the largest code."""
    if high == low + 1:
        return np.asarray(codes == low)
    if low == 0 or high > last:
        return np.asarray(codes < high if low == 0 else codes >= low)
    return np.asarray((codes >= low) & (codes < high))


@lru_cache(maxsize=1024)
def _mask_on(condition: Condition, sample: RowSample, statistics: TableStatistics) -> Bools | None:
    types = {name: column.data_type for name, column in statistics.columns.items()}
    return truth(condition.expression, sample, types, dialect=condition.dialect)
