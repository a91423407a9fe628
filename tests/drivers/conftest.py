"""Every test of the drivers runs with the lean path and without it."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["lean", "general"], autouse=True)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether clients that the test makes send and receive by themselves, or leave that to redis-py."""
    monkeypatch.setenv("SHARDQ_LEAN", "on" if request.param == "lean" else "off")
