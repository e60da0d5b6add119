"""Claim: choosing by expected time costs next to nothing over knowing the faster engine, and beats any fixed policy.

TPC-H, TPC-DS, the paper's bookstore and statements over skewed visits are run pinned to each engine, under each limit
(tape.py). Then the gateway decides about them, pass after pass, as it learns: every decision is priced with what the
tape says. The oracle takes the faster engine that answers. Beside ours stand policies of one line: DuckDB first and
Spark after an out-of-memory, always Spark, and the paper's formula against the limit. Statements are really sent to a
gateway, too, which chooses by itself (``--routed``).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.bookstore import DEFAULT_DATA, DataOption
from benchmarks.claim import Claim, RunFailed, Target, at_most, conditions, run_command, show_table, step
from benchmarks.serving import serving
from benchmarks.tape import (
    AMPLE_MIB,
    DATA_SETS,
    DEPENDABLE,
    FAST,
    MIB,
    Entry,
    Took,
    fresh_home,
    recorded,
    run_one,
    settings_of,
)
from engines.duckdb.adapter import SPEED as DUCKDB_SPEED
from engines.spark.adapter import SPEED as SPARK_SPEED
from gateway.statements import AUTO
from selector.decide import decide
from selector.decision import Candidate, Decision, RoutingPolicy
from selector.forecast.experience import Experience
from selector.forecast.history import PastRun, WorkloadKey
from selector.forecast.seconds import Work

LIMITS = (48, 96, 192, 384)
THIRD = 2 / 3  # share of the statements that fit into the limit which is chosen for that
PAPER_MISS_S = 34.0  # until the paper's Impala told that Q8 did not fit
FIRST_PASS, THIRD_PASS = 1.10, 1.05
FIRST_PASS_DEAR, THIRD_PASS_DEAR = 1.15, 1.05
SPEEDS = {FAST: DUCKDB_SPEED, DEPENDABLE: SPARK_SPEED}
Choice = Callable[[Entry, int], bool]


def _always(entry: Entry, limit_mib: int) -> bool:
    return True


def _never(entry: Entry, limit_mib: int) -> bool:
    return False


def _paper(entry: Entry, limit_mib: int) -> bool:
    return entry.estimate.paper_bytes is not None and entry.estimate.paper_bytes <= limit_mib * MIB


FIXED: Mapping[str, Choice] = {
    "DuckDB, then Spark": _always,
    "always Spark": _never,
    "the paper's formula": _paper,
}


@dataclass(frozen=True, slots=True)
class Pass:
    """All statements once. seconds: of each, with the oracle's beside; misses: statements that ran out of memory."""

    seconds: tuple[float, ...]
    oracle_s: tuple[float, ...]
    misses: int

    @property
    def ratio(self) -> float:
        """Seconds of all over the oracle's."""
        return sum(self.seconds) / sum(self.oracle_s)

    @property
    def p95(self) -> float:
        """The 95th percentile of a statement's seconds over the oracle's."""
        return float(np.percentile(np.array(self.seconds) / np.array(self.oracle_s), 95))


def run(
    data: DataOption = DEFAULT_DATA,
    sets: Annotated[str, typer.Option(help=f"Data sets, with commas between them: {', '.join(DATA_SETS)}.")] = ",".join(
        DATA_SETS
    ),
    limits: Annotated[str, typer.Option(help="DuckDB's limits for one statement in MiB.")] = ",".join(map(str, LIMITS)),
    third: Annotated[bool, typer.Option(help="Whether to add a limit at which a third of the statements miss.")] = True,
    passes: Annotated[int, typer.Option(help="How often all statements are asked.", min=1)] = 3,
    miss_s: Annotated[float, typer.Option(help="The higher price of a miss, in seconds.")] = PAPER_MISS_S,
    seed: Annotated[int, typer.Option(help="Of the order of statements; 0 for theirs.")] = 0,
    routed: Annotated[bool, typer.Option(help="Whether statements are really sent to a gateway, too.")] = True,
) -> Claim:
    """Price our decisions and those of fixed policies with what each statement took on each engine."""
    chosen = [DATA_SETS[name] for name in sets.split(",") if name]
    wanted = [int(limit) for limit in limits.split(",") if limit]
    if third:
        tapes = {each.name: recorded(data, each, ()) for each in chosen}
        wanted.append(_third([entry for tape in tapes.values() for entry in tape]))
    wanted.sort()
    tapes = {each.name: recorded(data, each, wanted) for each in chosen}
    statements = sum(len(tape) for tape in tapes.values())
    where = conditions(sets=sets, statements=statements, passes=passes, limits=f"{wanted} MiB", seed=seed)
    figures: dict[str, float] = {}
    targets: dict[str, Target] = {}
    for price_s, most_first, most_third in ((0.0, FIRST_PASS, THIRD_PASS), (miss_s, FIRST_PASS_DEAR, THIRD_PASS_DEAR)):
        rows = []
        for limit in wanted:
            fixed = {
                name: _joined(_fixed(tape, limit, price_s, go) for tape in tapes.values()) for name, go in FIXED.items()
            }
            played = [played_passes(tape, limit, price_s, passes, seed) for tape in tapes.values()]
            ours = [_joined(each) for each in zip(*played, strict=True)]
            name = f"{limit}mib{f'.miss_{price_s:g}s' if price_s else ''}"
            figures |= {f"{name}.pass_{number}": one.ratio for number, one in enumerate(ours, 1)}
            figures |= {f"{name}.best_fixed": min(one.ratio for one in fixed.values())}
            targets[f"{name}.pass_1"] = at_most(most_first)
            if passes >= 3:
                targets[f"{name}.pass_3"] = at_most(most_third)
            rows.append(_row(limit, ours, fixed))
        title = "Seconds over the oracle's, with the 95th percentile of a statement's and how many missed"
        title += f"; a miss costs {price_s:g} s more" if price_s else ""
        head = ["limit", *(f"ours, pass {number + 1}" for number in range(passes)), *FIXED]
        show_table(title, head, rows)
        _show_sets(tapes, wanted, price_s, passes, seed)
    if routed:
        figures |= _really(data, tapes, wanted, passes)
    print(where)
    return Claim("regret", figures, targets)


def played_passes(tape: Sequence[Entry], limit_mib: int, price_s: float, passes: int, seed: int) -> list[Pass]:
    """Let a gateway that knows nothing yet decide about all statements, pass after pass, and learn from what they took.

    price_s: that a miss costs more; the gateway is told so (routing.miss_price_s).
    """
    experience = Experience(SPEEDS)
    policy = RoutingPolicy(miss_price_s=price_s)
    missed: set[str] = set()
    found = []
    for number in range(passes):
        order = list(tape)
        if seed:
            random.Random(seed + number).shuffle(order)  # noqa: S311 - not for secrets
        seconds, misses = [], 0
        for entry in order:
            decision = _decided(entry, experience, policy, limit_mib, missed)
            spent_s = 0.0
            for engine in decision.ranking:
                took = entry.took(engine, limit_mib)
                _learn(experience, entry, decision, engine, took)
                spent_s += took.seconds
                if took.fits:
                    break
                spent_s += price_s
                misses += 1
                missed.add(entry.fingerprint)
            seconds.append(spent_s)
        found.append(Pass(tuple(seconds), tuple(entry.oracle_s(limit_mib) for entry in order), misses))
    return found


def _decided(entry: Entry, experience: Experience, policy: RoutingPolicy, limit_mib: int, missed: set[str]) -> Decision:
    subject, work = WorkloadKey(entry.fingerprint, entry.template), Work.of(entry.estimate)
    limit_bytes = limit_mib * MIB
    on_record = entry.fingerprint in missed
    fast = Candidate(
        FAST,
        dependable=False,
        limit_bytes=limit_bytes,
        forecast=experience.forecast(FAST, subject, work, entry.estimate, limit_bytes),
        misestimates=("earlier",) if on_record else (),
        missed_bytes=limit_bytes if on_record else None,
    )
    spark = Candidate(DEPENDABLE, dependable=True, forecast=experience.forecast(DEPENDABLE, subject, work))
    return decide((fast, spark), policy=policy, template=entry.template)


def _learn(experience: Experience, entry: Entry, decision: Decision, engine: str, took: Took) -> None:
    subject = WorkloadKey(entry.fingerprint, entry.template)
    expected = decision.expectation(engine)
    experience.learn(PastRun(engine, subject, expected, not took.fits, took.peak_bytes, took.seconds))


def _seconds(entry: Entry, took: Took, price_s: float, *, fast_first: bool) -> float:
    if not fast_first:
        return entry.dependable_s
    return took.seconds if took.fits else took.seconds + price_s + entry.dependable_s


def _fixed(tape: Sequence[Entry], limit_mib: int, price_s: float, goes_fast: Choice) -> Pass:
    """Price a policy that learns nothing."""
    choices = [(entry, entry.fast[limit_mib], goes_fast(entry, limit_mib)) for entry in tape]
    return Pass(
        tuple(_seconds(entry, took, price_s, fast_first=fast) for entry, took, fast in choices),
        tuple(entry.oracle_s(limit_mib) for entry in tape),
        sum(fast and not took.fits for _, took, fast in choices),
    )


def _joined(passes: Iterable[Pass]) -> Pass:
    """Return passes over several data sets as one."""
    every = list(passes)
    return Pass(
        tuple(second for each in every for second in each.seconds),
        tuple(second for each in every for second in each.oracle_s),
        sum(each.misses for each in every),
    )


def _third(entries: Sequence[Entry]) -> int:
    """Return the limit in MiB that two thirds of the statements stay below."""
    peaks = [entry.fast[AMPLE_MIB].peak_bytes or 0 for entry in entries if entry.fast[AMPLE_MIB].fits]
    if not peaks:
        raise RunFailed("no statement fits even the ample limit")
    return max(1, round(float(np.quantile(peaks, THIRD)) / MIB))


def _row(limit: int, ours: Sequence[Pass], fixed: Mapping[str, Pass]) -> list[str]:
    told = [f"{one.ratio:.3f} ({one.p95:.2f}; {one.misses})" for one in (*ours, *fixed.values())]
    return [f"{limit} MiB", *told]


def _show_sets(
    tapes: Mapping[str, Sequence[Entry]], limits: Sequence[int], price_s: float, passes: int, seed: int
) -> None:
    """Print the ratios of each data set by itself: ours in the first and last pass, and the best of the fixed ones."""
    rows = []
    for name, tape in tapes.items():
        cells = []
        for limit in limits:
            ours = played_passes(tape, limit, price_s, passes, seed)
            best = min(_fixed(tape, limit, price_s, go).ratio for go in FIXED.values())
            cells.append(f"{ours[0].ratio:.2f} / {ours[-1].ratio:.2f} / {best:.2f}")
        rows.append([f"{name} ({len(tape)})", *cells])
    show_table("By data set: first pass / last pass / best fixed policy", ["set", *(f"{x} MiB" for x in limits)], rows)


def _really(data: Path, tapes: Mapping[str, Sequence[Entry]], limits: Sequence[int], passes: int) -> dict[str, float]:
    """Send all statements to gateways that choose by themselves; the oracle's seconds are the tape's."""
    found: dict[str, float] = {}
    rows = []
    for limit in limits:
        seconds = [[0.0, 0.0, 0] for _ in range(passes)]
        for name, tape in tapes.items():
            home = fresh_home(data, DATA_SETS[name], "routed")
            with serving(settings_of(home, limit)) as (_, client):
                run_one(client, tape[0].sql, DEPENDABLE)  # an engine's first statement waits for its start
                for number in range(passes):
                    step(f"routed: {name}, {limit} MiB, pass {number + 1}")
                    for entry in tape:
                        took_s, reply = run_one(client, entry.sql, AUTO)
                        if reply is None or reply["state"] != "FINISHED":
                            raise RunFailed(f"{name} {entry.name} was not answered")
                        seconds[number][0] += took_s
                        seconds[number][1] += entry.oracle_s(limit)
                        seconds[number][2] += len(reply["attempts"]) > 1
            shutil.rmtree(home, ignore_errors=True)
        rows.append(
            [
                f"{limit} MiB",
                *(f"{ours:.1f} / {oracle:.1f} s = {ours / oracle:.3f} ({misses})" for ours, oracle, misses in seconds),
            ]
        )
        found |= {f"{limit}mib.routed_pass_{n}": ours / oracle for n, (ours, oracle, _) in enumerate(seconds, 1)}
    head = ["limit", *(f"pass {number + 1}" for number in range(passes))]
    show_table("Really routed, in seconds as the client saw them, over the tape's oracle (misses)", head, rows)
    return found


if __name__ == "__main__":
    run_command(run)
