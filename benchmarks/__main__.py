"""``python -m benchmarks``: run all claims, or one; options go to each of them.

The status is 0 unless a run itself failed: whether a claim holds is in its last line.
"""

from __future__ import annotations

import subprocess
import sys

CLAIMS = (
    "selectivity",
    "overhead",
    "throughput",
    "sessions",
    "regret",
    "coverage",
    "statistics",
    "drivers",
    "streaming",
    "policies",
    "same_answers",
    "attacks",
    "hostile_doors",
    "admission",
    "generalisation",
    "lake",
    "query_pages",
    "ledger",
    "members",
)
FAILED, WRONG_ARGUMENTS = 1, 2


def main(arguments: list[str]) -> int:
    """Run the claims that the arguments name, each in a process of its own; returns the status to end with."""
    names = [argument for argument in arguments[:1] if not argument.startswith("-")]
    unknown = [name for name in names if name not in CLAIMS]
    if unknown:
        print(f"error: no claim {unknown[0]}; there are {', '.join(CLAIMS)}", file=sys.stderr)
        return WRONG_ARGUMENTS
    options = arguments[len(names) :]
    failed = [
        name
        for name in names or CLAIMS
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], check=False).returncode != 0
    ]
    if failed:
        print(f"error: not run to the end: {', '.join(failed)}", file=sys.stderr)
    return FAILED if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
