"""Settings of sources of identity beside the users file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from engines.adapter import Section

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]


class OidcSettings(Section):
    """An OpenID Connect provider, whose signed tokens let users in; needs the extra `sso`."""

    issuer: str | None = None
    """Address of the provider, exactly as its tokens name it (`iss`); without it, tokens are ignored."""
    audience: tuple[str, ...] = ()
    """Names of this gateway at the provider; a token must be made for one of them (`aud`)."""
    username_claim: str = Field("sub", min_length=1)
    """Claim that is the user's name; choose one that the provider gives to nobody else, and users cannot change."""
    groups_claim: str = "groups"
    """Claim with the user's groups; a dot leads into an object (`realm_access.roles`). Empty: none."""
    algorithms: tuple[Algorithm, ...] = Field(("RS256", "ES256", "EdDSA"), min_length=1)
    """Algorithms of signatures that are accepted; all have a public key."""
    clock_skew_s: float = Field(60.0, ge=0.0, le=300.0)
    """Difference of the provider's clock that is forgiven; a token lasts that much longer."""
    keys_refresh_s: float = Field(900.0, ge=10.0)
    """Age at which the provider's keys are fetched again; a token under an unknown key has that done at once."""
    keys_keep_s: float = Field(86_400.0, ge=60.0)
    """How long keys are used while the provider does not answer; after that, no token lets anybody in."""
    timeout_s: float = Field(3.0, gt=0.0, le=30.0)
    """Time for each of the provider's two documents."""
    ca_file: Path | None = None
    """Certificates that are trusted for the provider in place of the system's, PEM."""

    @model_validator(mode="after")
    def _for_somebody(self) -> Self:
        if self.issuer is not None and not any(self.audience):
            raise ValueError("audience is missing: without it, tokens for other services would let their users in")
        return self
