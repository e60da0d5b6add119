"""Rules file: read at the start, and again after a change; an invalid file leaves the last valid rules active."""

from __future__ import annotations

import datetime as dt
import logging
import stat
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from engines.machine.file_marks import FileMark, mark_of
from gateway.routing.rules.reading import RulesInvalid, read_rules
from gateway.routing.rules.rules import RuleSet
from gateway.statements.settings import TAGS_HEADER

log = logging.getLogger(__name__)

LOOK_S = 1.0  # between two looks whether the file has changed
LONGEST_HEADER = 8 << 10  # signs of one that are looked at
SETTLED_S = 0.2  # a file that changed this long ago is still being written, perhaps
GONE = "the file is gone; the last valid rules stay active. An empty file says that there are no rules"
NO_RULES = RuleSet()


@dataclass(frozen=True, slots=True)
class RulesState:
    """Active rules and the state of their file.

    rules: active rules.
    path: file of the rules; None: rules are not read from a file.
    read_at: time at which the active rules were read.
    problems: errors of the file's current content; empty: the active rules are those of the file.
    hits: statements that each rule decided since the start, by its name.
    """

    rules: RuleSet
    path: Path | None
    read_at: dt.datetime | None
    problems: tuple[str, ...]
    hits: Mapping[str, int]


class RulesFile:
    """Rules of a gateway. Thread-safe; callers never wait for a file that is being read.

    path: file of the rules; None: no rules.
    engines: engine names that rules may use.
    required: a missing file is an error.
    """

    def __init__(self, path: Path | None, engines: Collection[str], *, required: bool = True) -> None:
        """Read the file. Raises RulesInvalid."""
        self._path = path
        self._engines = tuple(engines)
        self._rules = NO_RULES
        self._read_at: dt.datetime | None = None
        self._mark: FileMark = None
        self._problems: tuple[str, ...] = ()
        self._hits: Counter[str] = Counter()
        self._lock = threading.Lock()  # of what is told
        self._looking = threading.Lock()
        self._next_look = time.monotonic() + LOOK_S
        if path is None:
            return
        mark = self._marked()
        if mark is None and not required:
            return
        self._activate(read_rules(self._content(), self._engines), mark)

    def current(self) -> RuleSet:
        """Return the active rules; checks at most once a second whether the file has changed."""
        if self._path is not None and time.monotonic() >= self._next_look and self._looking.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._looking.release()
        return self._rules

    def reload(self) -> RulesState:
        """Read the file now, whether it has changed or not."""
        if self._path is not None:
            with self._looking:
                mark = self._marked()
                if mark is not None or self._mark is not None or self._read_at is not None:
                    self._take(mark)
        return self.state()

    def state(self) -> RulesState:
        """Return the active rules and the state of their file."""
        self.current()
        with self._lock:
            hits = {rule.name: self._hits[rule.name] for rule in self._rules.rule}
            return RulesState(self._rules, self._path, self._read_at, self._problems, hits)

    def headers_of(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of a request that rules look at, and the one that has tags. Names are in any case."""
        wanted = self.current().headers | {TAGS_HEADER}
        return {name: headers[name][:LONGEST_HEADER] for name in sorted(wanted) if name in headers}

    def hit(self, rule: str | None) -> None:
        """Count a statement that a rule decided about; None for one that met none."""
        if rule is not None:
            with self._lock:
                self._hits[rule] += 1

    def _look(self) -> None:
        self._next_look = time.monotonic() + LOOK_S
        mark = self._marked()
        if mark == self._mark:
            return
        if mark is not None and abs(time.time() - mark[0] / 1e9) < SETTLED_S:
            self._next_look = time.monotonic() + SETTLED_S
            return
        self._take(mark)

    def _marked(self) -> FileMark:
        assert self._path is not None
        return mark_of(self._path)

    def _take(self, mark: FileMark) -> None:
        """Read the file and activate its rules, or record its problems. mark: state of the file before it is read."""
        rules: RuleSet | None = None
        problems: tuple[str, ...] = ()
        try:
            rules = read_rules(self._content(), self._engines)
        except RulesInvalid as error:
            problems = error.problems
        if rules is not None:
            self._activate(rules, mark)
            return
        is_news = problems != self._problems
        with self._lock:
            self._mark, self._problems = mark, problems
        for problem in problems if is_news else ():
            log.error("the routing rules in %s are wrong, the last valid rules stay active: %s", self._path, problem)

    def _activate(self, rules: RuleSet, mark: FileMark) -> None:
        """Activate rules."""
        rule_names = {rule.name for rule in rules.rule}
        with self._lock:
            self._mark, self._problems = mark, ()
            self._rules, self._read_at = rules, dt.datetime.now(dt.UTC)
            self._hits = Counter({name: count for name, count in self._hits.items() if name in rule_names})
        log.info("%d routing rules hold, from %s", len(rules.rule), self._path)
        for warning in rules.warnings():
            log.warning("routing rules in %s: %s", self._path, warning)

    def _content(self) -> bytes:
        """Return the file's bytes. Raises RulesInvalid."""
        assert self._path is not None
        return content_of(self._path, gone=GONE if self._read_at is not None else "there is no such file")


def content_of(path: Path, *, gone: str = "there is no such file") -> bytes:
    """Return the bytes of a file of rules. gone: message without it. Raises RulesInvalid."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise RulesInvalid(["it is no file"])
        return path.read_bytes()
    except FileNotFoundError as error:
        raise RulesInvalid([gone]) from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise RulesInvalid([f"the file cannot be read: {why}"]) from error
