"""The body of a POST: it is small, and comes at once."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import ClientDisconnect, Request

PATIENCE: Final = 10.0
"""Seconds within which it has to be there."""


class TooLarge(Exception):
    """Somebody sends more than may be sent."""


async def body_of(request: Request, most: int) -> bytes:
    """Return the body of a request; b"" if it does not come in time. TooLarge if it has more than *most* bytes."""
    body = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    raise TooLarge
    except (TimeoutError, ClientDisconnect):
        return b""
    return bytes(body)
