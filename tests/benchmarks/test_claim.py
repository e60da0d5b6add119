from __future__ import annotations

import json
import math
import sys

import pytest

from benchmarks import __main__ as command
from benchmarks.claim import Claim, RunFailed, at_least, at_most, run_command

FIGURES = {"error_percent": 1.23456, "over_spark": 3.0, "pairs": 5}


def test_the_line_is_one_json_object() -> None:
    claim = Claim("example", FIGURES, {"error_percent": at_most(1.5), "over_spark": at_least(2.5)})
    assert "\n" not in claim.line()
    assert json.loads(claim.line()) == {
        "claim": "example",
        "figures": {"error_percent": 1.2346, "over_spark": 3.0, "pairs": 5},
        "targets": {"error_percent": {"at_most": 1.5}, "over_spark": {"at_least": 2.5}},
        "holds": True,
    }


@pytest.mark.parametrize(
    ("target", "holds"),
    [(at_most(3.0), True), (at_most(2.9), False), (at_least(3.0), True), (at_least(3.1), False)],
)
def test_a_target_is_a_bound_on_one_side(target: object, holds: bool) -> None:
    claim = Claim("example", FIGURES, {"pairs": at_least(1), "over_spark": target})  # type: ignore[dict-item]
    assert claim.holds is holds


def test_targets_need_figures_and_figures_numbers() -> None:
    with pytest.raises(ValueError, match="without a figure: speed"):
        Claim("example", FIGURES, {"speed": at_least(1)})
    with pytest.raises(ValueError, match="no numbers: speed"):
        Claim("example", {"speed": math.nan}, {})


def _missed(points: int = 1) -> Claim:
    return Claim("missed", {"points": points}, {"points": at_least(points + 1)})


def _failed() -> Claim:
    raise RunFailed("the data could not be made")


def test_a_missed_target_is_no_failed_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["missed", "--points", "7"])
    with pytest.raises(SystemExit) as ended:
        run_command(_missed)
    assert ended.value.code in (None, 0)
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["figures"], last["holds"]) == ({"points": 7}, False)


def test_a_failed_run_says_why_and_has_no_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["failed"])
    with pytest.raises(SystemExit) as ended:
        run_command(_failed)
    assert ended.value.code == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "error: the data could not be made\n")


def test_an_unknown_claim_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["nothing"]) == command.WRONG_ARGUMENTS
    assert capsys.readouterr().err == f"error: no claim nothing; there are {', '.join(command.CLAIMS)}\n"
