"""A setting that a public constructor does not have: the error names that constructor, and what it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardq import AsyncClient, AsyncWorker, Client, ConfigError, Worker
from shardq.edge import AsyncEdge, Edge
from shardq.testing import fake_client
from shardq.timing import ThreadTimer

NOWHERE = "redis://127.0.0.1:1"


async def handle(_: object) -> None:
    """Handle nothing."""


CASES: dict[str, tuple[Callable[[Path, dict[str, Any]], object], tuple[str, ...]]] = {
    "Client": (lambda _, given: Client.from_url(NOWHERE, **given), ("codec", "timeout")),
    "AsyncClient": (lambda _, given: AsyncClient.from_url(NOWHERE, **given), ("codec", "timeout")),
    "Worker": (lambda _, given: Worker(Client.from_url(NOWHERE).queue("jobs"), print, **given), ("backoff", "run_in")),
    "AsyncWorker": (
        lambda _, given: AsyncWorker(AsyncClient.from_url(NOWHERE).queue("jobs"), handle, **given),
        ("grace",),
    ),
    "Edge": (
        lambda path, given: Edge("localhost:1", spool=path / "spool.db", **given),
        ("codec", "max_bytes", "token"),
    ),
    "AsyncEdge": (
        lambda path, given: AsyncEdge("localhost:1", spool=path / "spool.db", **given),
        ("clock", "max_bytes"),
    ),
    "queue": (lambda _, given: Client.from_url(NOWHERE).queue("jobs", **given), ("streams", "window")),
    "fake_client": (lambda _, given: fake_client(**given), ("codec",)),
    "ThreadTimer": (lambda _, given: ThreadTimer(**given), ("clock",)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_error_names_who_was_called_and_what_there_is(name: str, tmp_path: Path) -> None:
    make, known = CASES[name]
    with pytest.raises(ConfigError) as caught:
        make(tmp_path, {"bogus": 1})
    text = str(caught.value)
    public = "Client" if name == "fake_client" else name
    assert text.startswith(f"unknown {public} setting 'bogus'; known are ")
    assert set(known) <= set(text.partition("known are ")[2].split(", "))
    assert not list(tmp_path.iterdir()), "nothing is begun"


def test_a_setting_of_the_other_worker_is_unknown() -> None:
    queue = AsyncClient.from_url(NOWHERE).queue("jobs")
    with pytest.raises(ConfigError, match="unknown AsyncWorker setting 'run_in'"):
        AsyncWorker(queue, handle, run_in="threads")  # type: ignore[call-arg]
