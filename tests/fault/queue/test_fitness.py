"""A server that is too old is refused before anything is sent to it; one that does not say is used with a warning."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from shardq import ServerUnfit
from shardq.clock import SystemClock
from shardq.durability import Durability
from shardq.ops.queue.fitness import inspect_server
from shardq.ops.queue.steps import Ask, Refused


def inspect(info: bytes | Refused, config: list[bytes] | Refused) -> list[str]:
    """Run the inspection against a server that gives these answers."""
    op: Generator[Any, Any, list[str]] = inspect_server(SystemClock(), Durability.parse("none"), 1.0)
    step = next(op)
    while True:
        assert isinstance(step, Ask)
        answer = info if step.words[0] == "INFO" else config
        try:
            step = op.throw(answer) if isinstance(answer, Refused) else op.send(answer)
        except StopIteration as done:
            return list(done.value)


@pytest.mark.parametrize(
    "info",
    [b"redis_version:6.2.14\r\n", b"redis_version:5.0.7\r\n", b"redis_version:7.2.4\r\nvalkey_version:7.0.0\r\n"],
)
def test_an_old_server_is_refused(info: bytes) -> None:
    with pytest.raises(ServerUnfit, match=r"needs|old|newer"):
        inspect(info, [])


@pytest.mark.parametrize("info", [b"redis_version:7.0.15\r\n", b"redis_version:7.2.4\r\nvalkey_version:9.1.2\r\n"])
def test_a_new_enough_server_is_used(info: bytes) -> None:
    assert inspect(info, [b"maxmemory-policy", b"noeviction", b"maxmemory", b"0"]) == []


def test_a_server_that_tells_nothing_is_used_with_a_warning() -> None:
    warnings = inspect(Refused("NOPERM", "no"), Refused("NOPERM", "no"))
    assert any("could not check" in each for each in warnings)
