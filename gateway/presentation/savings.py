"""The savings ledger in numbers that people read: engine-hours, and money where engines have prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from metastore.query_log.workload import SavingsLine

HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Savings:
    """A line of the ledger.

    spent_s, alone_s: engine-seconds with the gateway, and on the dependable engine alone.
    forecast_share: part of alone_s that is a forecast; None: there is nothing.
    spent_money, alone_money: the same by the engines' prices; None: an engine has no price.
    """

    key: str
    queries: int
    unknown: int
    failed_over: int
    ran_out: int
    spent_s: float
    alone_s: float
    forecast_share: float | None
    spent_money: float | None
    alone_money: float | None

    @classmethod
    def of(cls, line: SavingsLine, prices: Mapping[str, float]) -> Savings:
        """Add up a line. prices: of an hour of an engine, by name."""
        spent_s, measured_s = sum(line.spent_s.values()), sum(line.measured_s.values())
        forecast_s = sum(line.forecast_s.values())
        alone_s = measured_s + forecast_s
        alone: dict[str, float] = dict(line.measured_s)
        for engine, seconds in line.forecast_s.items():
            alone[engine] = alone.get(engine, 0.0) + seconds
        return cls(
            key=line.key,
            queries=line.queries,
            unknown=line.unknown,
            failed_over=line.failed_over,
            ran_out=line.ran_out,
            spent_s=spent_s,
            alone_s=alone_s,
            forecast_share=forecast_s / alone_s if alone_s else None,
            spent_money=_money(line.spent_s, prices),
            alone_money=_money(alone, prices),
        )

    @property
    def saved_s(self) -> float:
        """Engine-seconds that were not spent; negative: more was spent."""
        return self.alone_s - self.spent_s

    @property
    def saved_money(self) -> float | None:
        """Money that was not spent; None: unknown."""
        if self.spent_money is None or self.alone_money is None:
            return None
        return self.alone_money - self.spent_money

    @property
    def saved_share(self) -> float | None:
        """Saved part of what the dependable engine alone would have taken; None: it would have taken nothing."""
        return self.saved_s / self.alone_s if self.alone_s else None


def _money(seconds: Mapping[str, float], prices: Mapping[str, float]) -> float | None:
    if not prices or not seconds.keys() <= prices.keys():
        return None
    return sum(prices[engine] * spent_s / HOUR_S for engine, spent_s in seconds.items())
