"""What the hash `meta` of a queue says, for tests that look behind the queue (lua/state.lua)."""

from __future__ import annotations

from typing import Any, Final

from shardq.protocol.keys import QueueKeys

LINE: Final = ("virtual", "behind", "turns", "servable", "due_at", "waiting", "cancels")


def spelled_out(meta: dict[str, str]) -> dict[str, str]:
    """The fields of *meta*, and each of those that stand in one together."""
    together = dict(zip(LINE, meta["line"].split(" "), strict=True))
    return meta | together | _odd(meta["odd"]) | {"n": meta["last"].partition("-")[2]}


def _odd(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def line_of(raw: Any, keys: QueueKeys) -> dict[str, float]:
    """How those stand that wait."""
    return dict(zip(LINE, map(float, raw.hget(keys.meta, "line").split()), strict=True))


def set_line(raw: Any, keys: QueueKeys, **values: float) -> None:
    """Change some of that."""
    found = line_of(raw, keys) | values
    raw.hset(
        keys.meta,
        "line",
        " ".join(f"{found[name]:.3f}" if name == "due_at" else f"{found[name]:.0f}" for name in LINE),
    )


def odd_of(raw: Any, keys: QueueKeys) -> dict[str, str]:
    """What is not as usual."""
    return _odd((raw.hget(keys.meta, "odd") or b"").decode())


def set_odd(raw: Any, keys: QueueKeys, **values: str) -> None:
    """Change some of that."""
    raw.hset(keys.meta, "odd", "\n".join(f"{name}={value}" for name, value in (odd_of(raw, keys) | values).items()))
