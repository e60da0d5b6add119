"""The basis of a decision, and changes that would lead to another one, in words."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence

from gateway.presentation.formatting import cardinality, memory, share
from gateway.statistics.staleness import Drift
from selector.decision import Decision, ReasonCode, Remedy
from selector.estimate import MemoryEstimate
from selector.statistics import TableStatistics
from selector.wording import MIB

DIVERGENCES_SHOWN = 3
TENTHS_BELOW = 10 * MIB  # sizes are written with a decimal below, as ``mebibytes`` has it


def what_if(decision: Decision) -> tuple[str, ...]:
    """Return changes that would lead to another engine, the driver of the peak, and the largest divergences of rows."""
    texts = [_change(decision), _driver(decision.estimate), *_divergences(decision.estimate)]
    return tuple(filter(None, texts))


def operator_notes(estimate: MemoryEstimate) -> tuple[tuple[str, ...], ...]:
    """Return notes for each operator: it drives the peak, or the engine's rows diverge from ours there."""
    notes: list[list[str]] = [[] for _ in estimate.operators]
    if estimate.driver is not None:
        notes[estimate.driver].append("drives the peak")
    for place in estimate.divergences():
        factor = estimate.operators[place].divergence or 1.0
        notes[place].append(f"differs from the engine's rows by a factor of {factor:,.{1 if factor < 100.0 else 0}f}")
    return tuple(map(tuple, notes))


def statistics_sentence(table: str, build: TableStatistics | None, drift: Drift | None, *, at: dt.datetime) -> str:
    """Return age, source and drift of a table's statistics. drift: changes of its files since; None: not known."""
    if build is None:
        return f"{table} has no statistics; run: fusion stats compute {table}"
    sentence = (
        f"statistics of {table} are {_age(at - build.built_at)} old" if build.built_at else f"{table} was described"
    )
    if build.source == "manual" or build.manual:
        sentence += ", set by hand"
    elif build.share < 1.0:
        sentence += f", from {share(build.share)} of it"
    if drift is not None and drift.share > 0.0:
        sentence += f"; {share(drift.share)} of its files have changed since"
    return sentence


def by_weight(tables: Sequence[str], estimate: MemoryEstimate) -> tuple[str, ...]:
    """Return tables, those below the operator that drives the peak first."""
    first = estimate.tables_below(estimate.driver) if estimate.driver is not None else ()
    return tuple(dict.fromkeys((*(name for name in first if name in tables), *tables)))


def _change(decision: Decision) -> str:
    codes = [reason.code for reason in decision.reasons]
    if ReasonCode.PINNED in codes:
        return "The estimate would decide if no engine were asked for by name."
    if ReasonCode.RULE in codes:
        return "A routing rule decided: see fusion rules explain."
    if decision.remedy is not None:
        return _opening(decision.remedy, decision, codes)
    is_tried = bool(codes) and codes[0] in (ReasonCode.FITS, ReasonCode.WORTH_A_TRY)
    if not is_tried or decision.limit_bytes is None or not decision.turning_bytes:
        return ""
    if len(decision.ranking) > 1:
        then = f"It would go to {decision.ranking[1]}"
    elif ReasonCode.ENGINE_DOWN in codes:
        then = "No engine would take it now"
    else:
        return ""  # there is no other engine
    below = f"below {_written(decision.turning_bytes, up=False)} (it is {memory(decision.limit_bytes)})"
    return f"{then} if the limit of {decision.engine} were {below}."


def _opening(remedy: Remedy, decision: Decision, codes: Sequence[ReasonCode]) -> str:
    engine, estimate = remedy.engine, decision.estimate
    if ReasonCode.UNSUPPORTED_FEATURE in remedy.blocked:
        return f"Nothing sends it to {engine}, which cannot run this statement."
    if ReasonCode.FASTER_ELSEWHERE in remedy.blocked:
        return f"No limit sends it to {engine}, where it would not be faster."
    if ReasonCode.DIALECT in remedy.blocked:
        return f"Nothing sends it to {engine}, which might answer this statement differently."
    needed = []
    if ReasonCode.ENGINE_DOWN in remedy.blocked:
        needed.append("it were available again")
    if ReasonCode.NO_ESTIMATE in remedy.blocked:
        needed.append("its memory could be estimated")
    if remedy.limit_bytes is not None:
        needed.append(f"the limit were {_written(remedy.limit_bytes, up=True)} (it is {memory(decision.limit_bytes)})")
    if ReasonCode.MISESTIMATE_ON_RECORD in remedy.blocked:
        needed.append("it had not run out of memory there")
    sentence = f"It would go to {engine} if {' and '.join(needed)}"
    if ReasonCode.MISESTIMATE_ON_RECORD in codes:
        return f"{sentence}, or once new statistics of its tables make it look smaller."
    if estimate.peak_bytes is not None and decision.limit_bytes is not None and remedy.limit_bytes is not None:
        if estimate.peak_bytes <= decision.limit_bytes and estimate.gaps:
            return f"{sentence}; the expected peak fits already, so better statistics may be enough."
    return f"{sentence}."


def _driver(estimate: MemoryEstimate) -> str:
    if estimate.driver is None:
        return ""
    held = memory(estimate.operators[estimate.driver].held_bytes)
    return f"Driver of the peak: {_named(estimate, estimate.driver)}, which holds {held}."


def _divergences(estimate: MemoryEstimate) -> list[str]:
    places = sorted(estimate.divergences(), key=lambda place: -(estimate.operators[place].divergence or 1.0))
    sentences: list[str] = []
    for place in places[:DIVERGENCES_SHOWN]:
        part = estimate.operators[place]
        rows = f"{cardinality(part.rows)} rows (ours) against {cardinality(part.engine_rows)} (the engine's)"
        sentences.append(f"{'Next' if sentences else 'Largest'} divergence: {_named(estimate, place)}, {rows}.")
    return sentences


def _named(estimate: MemoryEstimate, place: int) -> str:
    part, tables = estimate.operators[place], estimate.tables_below(place)
    if part.table is not None or not tables:
        return part.operator
    others = f"{', '.join(tables[:-1])} and " if len(tables) > 1 else ""
    return f"{part.operator} of {others}{tables[-1]}"


def _written(count: int, *, up: bool) -> str:
    """Write a limit, rounded to the side on which the rounded one still has the effect."""
    step = MIB if count >= TENTHS_BELOW else MIB / 10
    return memory(round((math.ceil if up else math.floor)(count / step) * step))


def _age(age: dt.timedelta) -> str:
    minutes = max(0, int(age / dt.timedelta(minutes=1)))
    for unit, size in (("day", 1_440), ("hour", 60), ("minute", 1)):
        if minutes >= size:
            number = minutes // size
            return f"{number} {unit}{'s' if number > 1 else ''}"
    return "less than a minute"
