"""What somebody POSTs, before anybody looks at what it says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from shardq.dashboard import bodies
from shardq.dashboard.bodies import TooLarge, body_of


def sent(*messages: dict[str, Any]) -> Request:
    """A request of which these messages come, and no more."""
    left = list(messages)

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


def piece(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_comes_in_pieces() -> None:
    assert await body_of(sent(piece(b"a"), piece(b"b", more=False)), 2) == b"ab"


async def test_a_body_that_goes_on_is_not_kept() -> None:
    with pytest.raises(TooLarge):
        await body_of(sent(piece(b"a"), piece(b"bc")), 2)


async def test_a_sender_that_goes_away_or_waits_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await body_of(sent(piece(b"{}"), {"type": "http.disconnect"}), 10) == b""
    monkeypatch.setattr(bodies, "PATIENCE", 0.01)
    assert await body_of(sent(piece(b"{}")), 10) == b""
