"""The event loop of the HTTP server."""

from __future__ import annotations

import asyncio
from typing import Any

HANDSHAKE_S = 10.0


class PatientLoop(asyncio.SelectorEventLoop):
    """Gives up on a TLS handshake that is not done in ``HANDSHAKE_S``; asyncio waits for a minute."""

    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.Server:
        """Listen, as asyncio does."""
        if options.get("ssl") is not None:
            options.setdefault("ssl_handshake_timeout", HANDSHAKE_S)
        return await super().create_server(*arguments, **options)
