"""Service accounts as JSON. Names are fixed; fields may be added."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

from pydantic import AfterValidator, Field

from gateway.http.models.common import RecordModel, RequestModel, Words
from gateway.security.authentication import TOKEN_USER
from gateway.security.principals import ANONYMOUS, Role
from metastore.members.service_accounts import ServiceAccount

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
RESERVED = (TOKEN_USER, ANONYMOUS)
MINUTE_S, DAY_S = 60.0, 86_400.0
USUAL_S, LONGEST_S = 90 * DAY_S, 366 * DAY_S
LONGEST_OVERLAP_S = 30 * DAY_S


def _free(name: str) -> str:
    if name in RESERVED:
        raise ValueError(f"{name} is the gateway's own name for a login")
    return name


Life = Annotated[float, Field(ge=MINUTE_S, le=LONGEST_S, description="Life of the token: a minute to 366 days.")]


class AccountRequest(RequestModel):
    """A service account to add."""

    name: Annotated[str, Field(pattern=NAME, max_length=128), AfterValidator(_free)]
    role: Role | None = Field(None, strict=False, description="null: by authentication.roles, its groups, the default.")
    groups: Words = Field(default_factory=list)
    expires_s: Life = USUAL_S


class RotationRequest(RequestModel):
    """A new token for a service account."""

    expires_s: Life = USUAL_S
    overlap_s: float = Field(0.0, ge=0.0, le=LONGEST_OVERLAP_S, description="Time for which the old token counts, too.")


class AccountReply(RecordModel):
    """A service account."""

    name: str
    role: Role | None
    groups: list[str]
    expires_at: dt.datetime
    earlier_until: dt.datetime | None
    created_at: dt.datetime
    created_by: str

    @classmethod
    def of(cls, account: ServiceAccount) -> AccountReply:
        """Return an account without its tokens' hashes."""
        return cls.model_validate(account)


class NewTokenReply(RecordModel):
    """A service account with its new token, which no later reply has."""

    account: AccountReply
    token: str


class AccountList(RecordModel):
    """All service accounts."""

    service_accounts: list[AccountReply]
