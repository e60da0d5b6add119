"""A statement as other users see it: without the values in its text, and without messages of engines."""

from __future__ import annotations

from dataclasses import replace

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from gateway.catalog.snapshot import CatalogSnapshot
from gateway.security.policy import Action, Owned, Policy
from gateway.security.principals import Principal, Role
from metastore.records import ALL_TABLES, Attempt, Misestimate, ParityCase, QueryRecord, Schedule
from sql.dialects.names import DIALECTS
from sql.errors import Failure
from sql.tables import canonical

HIDDEN_TEXT = "(hidden: only its user and operators see it)"
LONGEST_SHOWN = 16 << 10  # characters of a statement; removing the values from longer ones costs too much in a list
PLACE = "?"
_VALUES = frozenset(
    {
        TokenType.STRING,
        TokenType.NUMBER,
        TokenType.BIT_STRING,
        TokenType.HEX_STRING,
        TokenType.BYTE_STRING,
        TokenType.NATIONAL_STRING,
        TokenType.RAW_STRING,
        TokenType.HEREDOC_STRING,
        TokenType.UNICODE_STRING,
    }
)


def visible(record: QueryRecord, principal: Principal, policy: Policy) -> QueryRecord:
    """Return a query without what a user may not see."""
    if may_see(record, principal, policy):
        return record if principal.role.includes(Role.OPERATOR) else shown_to_its_user(record)
    decision = record.decision
    if decision is not None:
        decision = replace(
            decision,
            reasons=tuple(replace(reason, text=HIDDEN_TEXT) for reason in decision.reasons),
            estimate=replace(decision.estimate, operators=(), gaps=(), driver=None, learned=None),
            others=(),
        )
    hides_names = policy.hides_names(principal)
    if hides_names and decision is not None:
        decision = replace(decision, reads={})
    return replace(
        record,
        statistics_version=None if hides_names else record.statistics_version,
        template=None if hides_names else record.template,
        sql=HIDDEN_TEXT if hides_names else without_values(record.sql, record.dialect),
        fingerprint=None,
        decision=decision,
        attempts=tuple(map(_without_words, record.attempts)),
        error=Failure(record.error.code, HIDDEN_TEXT) if record.error else None,
    )


def shown_to_its_user(record: QueryRecord) -> QueryRecord:
    """Return a query without what statistics tell of rows and columns that its user may not see."""
    if record.decision is None or not record.decision.is_of_parts:
        return record
    attempts = tuple(
        replace(attempt, actuals=replace(attempt.actuals, operators=()) if attempt.actuals else None)
        for attempt in record.attempts
    )
    summary = replace(record.summary, expected_bytes=None, within_bound=None, alone=None) if record.summary else None
    decision = record.decision.without_expectations()
    return replace(record, decision=decision, attempts=attempts, summary=summary, statistics_version=None)


def may_see(record: QueryRecord, principal: Principal, policy: Policy) -> bool:
    """Tell whether a user may see a query's values."""
    return policy.allows(principal, Action.SEE_STATEMENT, Owned("query", record.id, record.owner))


def may_see_schedule(schedule: Schedule, shown: CatalogSnapshot, principal: Principal, policy: Policy) -> bool:
    """Tell whether a user may know of a schedule. shown: what the user sees of the catalog."""
    if schedule.statements:
        return policy.allows(principal, Action.SEE_STATEMENT, Owned("schedule", schedule.name, schedule.owner))
    return schedule.tables == ALL_TABLES or shown.shows_whole(map(canonical, schedule.tables))


def visible_misestimate(misestimate: Misestimate, principal: Principal, policy: Policy) -> Misestimate:
    """Return a misestimate without what a user may not see; its record does not name the statement's owner."""
    if policy.allows(principal, Action.FORGET_MISESTIMATE):
        return misestimate
    if policy.hides_names(principal):
        return replace(misestimate, sql=HIDDEN_TEXT, statistics_version="")
    return replace(misestimate, sql=without_values(misestimate.sql, "spark"))


def visible_case(case: ParityCase, principal: Principal, policy: Policy) -> ParityCase:
    """Return a case of differing answers without what a user may not see."""
    if policy.allows(principal, Action.SEE_STATEMENT, Owned("query", case.query_id, case.owner)):
        return case
    hidden = (HIDDEN_TEXT,)
    hides_names = policy.hides_names(principal)
    sql = HIDDEN_TEXT if hides_names else without_values(case.sql, case.dialect)
    if hides_names:
        case = replace(case, snapshots={})
    return replace(case, sql=sql, difference=HIDDEN_TEXT, rows=hidden, other_rows=hidden)


def without_values(sql: str, dialect: str) -> str:
    """Return a statement with ? for every number and text, and without comments; hidden as a whole if it is not SQL."""
    if len(sql) > LONGEST_SHOWN:
        return HIDDEN_TEXT
    try:
        tokens = Dialect.get_or_raise(DIALECTS.get(dialect, "spark")).tokenize(sql)
    except SqlglotError:
        return HIDDEN_TEXT
    pieces: list[str] = []
    end = 0
    for token in tokens:
        gap = sql[end : token.start]
        pieces.append("\n" if "\n" in gap else " " if gap else "")
        written = sql[token.start : token.end + 1]
        pieces.append(PLACE if token.token_type in _VALUES or written[:1] in "'\"" else written)
        end = token.end + 1
    return "".join(pieces).strip()


def _without_words(attempt: Attempt) -> Attempt:
    actuals = replace(attempt.actuals, operators=()) if attempt.actuals else None
    return replace(attempt, message=HIDDEN_TEXT if attempt.message else None, actuals=actuals)
