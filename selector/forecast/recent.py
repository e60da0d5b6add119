"""The last runs of one engine, found by what ran: a repeated statement must not make its forecast slow."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from selector.forecast.history import PastRun, WorkloadKey


class RecentRuns:
    """Runs in their order; of more than ``most``, the oldest are forgotten. Not thread-safe."""

    def __init__(self, most: int, runs: Iterable[PastRun] = ()) -> None:
        self._most = most
        self._runs: deque[PastRun] = deque()
        self._newest: dict[str, PastRun] = {}  # by fingerprint, the newest last
        self._of: dict[str, dict[str, deque[PastRun]]] = {}  # by template and fingerprint, the newest last
        for run in runs:
            self.add(run)

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[PastRun]:
        return iter(self._runs)

    def add(self, run: PastRun) -> PastRun | None:
        """Take in the newest run; return the oldest one where that is forgotten."""
        forgotten = self._forget_oldest() if len(self._runs) == self._most else None
        subject = run.subject
        self._runs.append(run)
        self._newest.pop(subject.fingerprint, None)
        self._newest[subject.fingerprint] = run
        statements = self._of.setdefault(subject.template, {})
        own = statements.pop(subject.fingerprint, None)
        statements[subject.fingerprint] = own = deque() if own is None else own
        own.append(run)
        return forgotten

    def of_statement(self, subject: WorkloadKey) -> Sequence[PastRun]:
        """Return a statement's runs, oldest first."""
        return self._of.get(subject.template, {}).get(subject.fingerprint, ())

    def newest_of_template(self, template: str) -> list[PastRun]:
        """Return the newest run of each statement of a template, newest first."""
        return [own[-1] for own in reversed(self._of.get(template, {}).values())]

    def newest(self, fingerprint: str) -> PastRun | None:
        """Return the newest run of a statement."""
        return self._newest.get(fingerprint)

    def newest_of_each(self) -> Iterator[PastRun]:
        """Yield the newest run of each statement, newest first: one that is repeated says nothing about another."""
        return reversed(self._newest.values())

    def _forget_oldest(self) -> PastRun:
        oldest = self._runs.popleft()
        template, fingerprint = oldest.subject.template, oldest.subject.fingerprint
        if self._newest[fingerprint] is oldest:
            del self._newest[fingerprint]
        own = self._of[template][fingerprint]
        own.popleft()
        if not own:
            del self._of[template][fingerprint]
            if not self._of[template]:
                del self._of[template]
        return oldest
