"""The server as the page tells of it: its version, its memory, and what a restart loses."""

from __future__ import annotations

from typing import Any, Final

from shardq.dashboard import numbers
from shardq.dashboard.marked import spelled
from shardq.dashboard.source import SceneSource
from shardq.model.wording import share, size
from shardq.ops.queue.retry import ask
from shardq.outlook.sentence import At, Parts

FRESH_SECONDS: Final = 10.0
"""Seconds for which that is fresh."""
MEMORY_POLICIES: Final = {
    "noeviction": "when it is full, writes fail and nothing is lost",
    "": "nobody knows what happens when it is full",
}
"""The effect of a full memory, by its policy; by any other policy keys are lost."""


async def server_rows(source: SceneSource, queue: str, now: float) -> list[list[Any]]:
    """Return the rows about the node that has this queue: a name and a text. [] where it does not tell."""
    client = source.client
    state = client.queue(queue, create=False).state

    async def info() -> bytes:
        found = await client.run(ask(state, "INFO", "server", "memory", "persistence", key=state.keys.meta))
        return found if isinstance(found, bytes) else b""

    found = await numbers.allowed(source.shared(("server",), info, fresh=FRESH_SECONDS))
    return _rows(fields_of(found or b""), now)


def fields_of(info: bytes) -> dict[str, str]:
    r"""Read the fields of INFO.

    >>> fields_of(b"# Server\r\nredis_version:7.0.15\r\n")
    {'redis_version': '7.0.15'}
    """
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _rows(info: dict[str, str], now: float) -> list[list[Any]]:
    if not info:
        return []
    product = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version") or info.get("redis_version", "")
    rows: list[tuple[str, Parts]] = [("Version", [f"{product} {version}"])]
    if _number(info, "used_memory"):
        rows.append(("Memory", [_memory(info)]))
    if "aof_enabled" in info:
        rows.append(("A restart", _restart(info, now)))
    return [[name, spelled(text)] for name, text in rows]


def _memory(info: dict[str, str]) -> str:
    used, limit, policy = _number(info, "used_memory"), _number(info, "maxmemory"), info.get("maxmemory_policy", "")
    if not limit:
        return f"{size(used)}, without a limit: set maxmemory"
    full = MEMORY_POLICIES.get(policy, "when it is full, it drops keys: messages are lost")
    return f"{share(used / limit)} of {size(limit)}, {policy or 'unknown policy'}: {full}"


def _restart(info: dict[str, str], now: float) -> Parts:
    if info["aof_enabled"] == "1":
        return ["loses at most what was not synced yet: the append-only file is on"]
    saved = _number(info, "rdb_last_save_time")
    return ["loses all since the last snapshot, of ", At(float(saved), now)] if saved else ["loses all messages"]


def _number(info: dict[str, str], name: str) -> int:
    text = info.get(name, "")
    return int(text) if text.isdigit() else 0
