"""Settings of rights on tables and columns."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, field_validator, model_validator

from engines.adapter import Section
from gateway.security.addresses import require_private


class OpaSettings(Section):
    """An Open Policy Agent, whose policy says the access rules in place of the file."""

    url: str | None = None
    """Address of the rules in its data API, such as `http://127.0.0.1:8181/v1/data/fusion/access`; without it, no agent
    is asked."""
    token: SecretStr = SecretStr("")
    """Bearer token that the agent asks for; empty: none."""
    refresh_s: float = Field(0.5, ge=0.1, le=60.0)
    """Time between two questions: a change holds that much later."""
    max_age_s: float = Field(10.0, ge=1.0, le=600.0)
    """Time for which rules hold while the agent gives none; after that, only owners and administrators see anything."""
    timeout_s: float = Field(2.0, gt=0.0, le=30.0)
    """Time for one answer."""
    ca_file: Path | None = None
    """Certificates that are trusted for the agent in place of the system's, PEM."""

    @field_validator("url")
    @classmethod
    def _private(cls, url: str | None) -> str | None:
        if url is not None:
            require_private(url)
        return url


class AccessSettings(Section):
    """Rights on tables and columns."""

    policy_file: Path | None = None
    """File of grants, row filters and column masks, TOML."""
    closed: tuple[str, ...] = ()
    """Tables and views that only grants open, such as `hr.*` or `*`, beside those that the policy closes; without both,
    everybody may read every table, and there is nothing to grant."""
    opa: OpaSettings = OpaSettings()

    @model_validator(mode="after")
    def _one_policy(self) -> Self:
        if self.policy_file is not None and self.opa.url is not None:
            raise ValueError("policy_file and opa.url are both there: the rules come from one of them")
        return self
