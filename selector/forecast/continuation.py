"""What to do with an attempt that fills its memory: go on, start the next engine in its place, or run both.

All three are priced in expected seconds from now, as ``decide`` does it before anything runs:

    E[go on]  = P(fits) * rest + (1 - P(fits)) * (seconds until it runs out of memory + elsewhere)
    E[switch] = elsewhere
    E[race]   = P(fits) * slowed * min(rest, elsewhere) + (1 - P(fits)) * (elsewhere + (slowed - 1) * until it runs out)

P(fits) is the forecast's, on condition that the peak is not below what is held already: (F(limit) - F(held)) /
(1 - F(held)). On one machine both engines of a race slow each other, and where each keeps all processors busy, a race
never pays. Seconds of an engine that works in vain have a price, too, or each statement would race.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from selector.forecast.distribution import BEYOND, TAIL
from selector.forecast.experience import PeakForecast
from selector.wording import mebibytes, percent, seconds_of

IN_VAIN = 0.25  # of a second that an engine works for nothing: somebody else may wait for it
EVIDENCE = 0.5  # share of the first probability of fitting, to which it must have fallen before a run is broken off
GAIN = 0.05  # share of what going on is expected to take, that must be saved: a run that is broken off is lost
LIKELY = 0.5  # to fit: what is more likely is not broken off
LEAST_SHARE = 0.02  # of the work, below which an engine's own word says nothing about its end


class Continuation(StrEnum):
    """What comes next."""

    GO_ON = "go on"
    SWITCH = "switch"
    RACE = "race"


@dataclass(frozen=True, slots=True)
class Prospects:
    """What was expected of an attempt before it began. peak: as a distribution.

    fits: probability that it fits, as it was then. seconds: that it takes if it does. elsewhere_s: that the next engine
    takes, its wait included. slowed: how many times longer each of both takes while both run, at least 1.
    """

    peak: PeakForecast
    fits: float
    seconds: float
    elsewhere_s: float
    slowed: float


@dataclass(frozen=True, slots=True)
class Standing:
    """How a running attempt stands.

    held_bytes: the most that it has held. limit_bytes: that it can get at most. elapsed_s: since it runs.
    bytes_per_s: by which it grows now. share: of its work that is done, as its engine says; None where it does not.
    """

    held_bytes: int
    limit_bytes: int
    elapsed_s: float
    bytes_per_s: float
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Weighed:
    """What was weighed, and what comes of it. fits: on condition of what is held. All seconds are from now."""

    choice: Continuation
    standing: Standing
    fits: float
    rest_s: float
    until_full_s: float
    go_on_s: float
    switch_s: float
    race_s: float

    def text(self, other: str) -> str:
        """Say why for people: the middle of a sentence about the attempt. other: the next engine."""
        standing = self.standing
        return (
            f"it held {mebibytes(standing.held_bytes)} of the {mebibytes(standing.limit_bytes)} that it could get "
            f"after {seconds_of(standing.elapsed_s)} and fitted with a probability of {percent(self.fits)}; going on "
            f"would have taken {seconds_of(self.go_on_s)} more on average, and {other} {seconds_of(self.switch_s)}"
        )


def weigh(prospects: Prospects, standing: Standing) -> Weighed:
    """Choose what is expected to end first. What is likely to fit, or as likely as it ever was, goes on."""
    fits = fits_given(prospects.peak, standing.held_bytes, standing.limit_bytes)
    rest_s = _rest_s(prospects.seconds, standing)
    room_bytes = max(0, standing.limit_bytes - standing.held_bytes)
    until_full_s = min(rest_s, room_bytes / standing.bytes_per_s) if standing.bytes_per_s > 0 else rest_s
    elsewhere_s, slowed = prospects.elsewhere_s, prospects.slowed
    go_on_s = fits * rest_s + (1.0 - fits) * (until_full_s + elsewhere_s)
    won_s = slowed * min(rest_s, elsewhere_s)
    race_s = fits * won_s + (1.0 - fits) * (elsewhere_s + (slowed - 1.0) * until_full_s)
    in_vain_s = IN_VAIN * (fits * won_s + (1.0 - fits) * until_full_s)
    choice = Continuation.GO_ON
    if fits <= min(LIKELY, EVIDENCE * prospects.fits):
        seconds = {
            Continuation.GO_ON: (1.0 - GAIN) * go_on_s,
            Continuation.RACE: race_s + in_vain_s,
            Continuation.SWITCH: elsewhere_s,
        }
        choice = min(seconds, key=lambda each: seconds[each])
    return Weighed(choice, standing, fits, rest_s, until_full_s, go_on_s, elsewhere_s, race_s)


def fits_given(peak: PeakForecast, held_bytes: int, limit_bytes: int) -> float:
    """Return the probability that a peak is not above a limit, of one that is not below what is held already.

    Where more is held than was ever expected, the forecast is silent: then the peak lies up to a factor of 2 above.
    """
    if held_bytes >= limit_bytes:
        return 0.0
    above = 1.0 - peak.below(held_bytes)
    if above < TAIL:
        return min(1.0, math.log(limit_bytes / max(1, held_bytes)) / BEYOND)
    return max(0.0, peak.below(limit_bytes) - peak.below(held_bytes)) / above


def _rest_s(seconds: float, standing: Standing) -> float:
    """Return how much longer it takes if it fits.

    By the forecast; where that has passed, as long as it has taken already. An engine's own word for the work that is
    done is mostly too small, and never in step with time (DuckDB's stands at 10 % in the middle of a join): it counts
    where it says that less is left.
    """
    left_s = seconds - standing.elapsed_s
    expected_s = left_s if left_s > 0 else standing.elapsed_s
    if standing.share is None or standing.share < LEAST_SHARE:
        return expected_s
    return min(expected_s, standing.elapsed_s * max(0.0, 1.0 - standing.share) / standing.share)
