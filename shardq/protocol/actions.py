"""How an action is spelled in the hash `actions`: see lua/actions.lua."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from shardq.errors import ConfigError
from shardq.model.action import ActionKind, ActionState, ActionStatus
from shardq.model.where import Where, WhereState

LEASE: Final = 30.0
"""Seconds for which an action is its holder's: as `LEASE` in lua/actions.lua."""

_OTHERS: Final = ("task", "error", "reason", "older_than", "newer_than", "state")
"""The fields of a filter but the tenant."""

_HEAD: Final = re.compile(
    rb"([a-z]+) (\S+)((?: \d{1,20}){7}) (\d{1,20}|-) (\d{1,20}) (\d{1,20}) (\d{1,20})-(\d{1,20}) (\d{1,20}-\d{1,20})"
)


class AskedAction(msgspec.Struct, frozen=True):
    """The action as it was asked for."""

    kind: ActionKind
    where: Where
    by: str = ""
    note: str = ""
    rate: float | None = None
    limit: int | None = None
    via: str = ""


class _Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """The same as it is written: `raw` is a tenant that is no text."""

    kind: ActionKind
    by: str = ""
    note: str = ""
    rate: float | None = None
    limit: int | None = None
    via: str = ""
    tenant: str | None = None
    raw: bytes | None = None
    task: str | None = None
    error: str | None = None
    reason: str | None = None
    older_than: float | None = None
    newer_than: float | None = None
    state: WhereState | None = None


class StoredAction(msgspec.Struct):
    """An action as it stands in Redis. Times are ms of the server's clock.

    `number` counts actions. It is about the messages up to number `last` that there were when it began, and the dead
    letters up to the entry id `last_letter`. `last_ms` is the time in the id of that message.
    """

    asked: AskedAction
    state: ActionState
    holder: str
    heard: int
    step: int
    done: int
    passed: int
    left: int | None
    started: int
    number: int
    last_ms: int
    last: int
    last_letter: str
    position: str
    problem: str

    def status(self, action_id: str, now_ms: float) -> ActionStatus:
        """Return its status at this time."""
        state = self.state
        if state in ("running", "stopping") and abs(now_ms - self.heard) >= LEASE * 1000:
            # Nobody works on it. One that was asked to stop has done so: no other process continues it by itself.
            state = "abandoned" if state == "running" else "stopped"
        asked = self.asked
        return ActionStatus(
            action_id, asked.kind, asked.where, state, asked.by, asked.note, asked.rate, asked.limit,
            self.started / 1000, self.heard / 1000, self.done, self.passed, self.left, self.problem, asked.via,
        )  # fmt: skip


def spelled(asked: AskedAction) -> str:
    """Return what was asked for as one text."""
    where = asked.where
    tenant, raw = (None, where.tenant) if isinstance(where.tenant, bytes) else (where.tenant, None)
    written = _Written(
        asked.kind, asked.by, asked.note, asked.rate, asked.limit, asked.via, tenant, raw,
        **{name: getattr(where, name) for name in _OTHERS},
    )  # fmt: skip
    return msgspec.json.encode(written, enc_hook=_plain).decode()


def _plain(value: object) -> object:
    """Return what a text or number of another class is, such as numpy's. Nothing of that class is called."""
    if isinstance(value, str):
        return str.__str__(value)
    return int.__index__(value) if isinstance(value, int) else float.__float__(cast("float", value))


def asked_in(text: bytes) -> AskedAction | None:
    """Read it; None if another program wrote it."""
    try:
        written = msgspec.json.decode(text, type=_Written)
        tenant = written.tenant if written.raw is None else written.raw
        where = Where(tenant=tenant, **{name: getattr(written, name) for name in _OTHERS})
    except (msgspec.MsgspecError, ConfigError, ValueError):
        return None
    return AskedAction(written.kind, where, written.by, written.note, written.rate, written.limit, written.via)


def stored(raw: bytes) -> StoredAction | None:
    """Read an action; None if another program wrote it."""
    head, _, rest = raw.partition(b"\n")
    position, _, rest = rest.partition(b"\n")
    problem, _, spec = rest.partition(b"\n")
    found, asked = _HEAD.fullmatch(head), asked_in(spec)
    if found is None or asked is None or found[1].decode() not in ("running", "stopping", "stopped", "done", "failed"):
        return None
    heard, step, _, _, _, done, passed = map(int, found[3].split())
    left = None if found[4] == b"-" else int(found[4])
    state: Any = found[1].decode()
    started, number, last_ms, last = map(int, found.groups()[4:8])
    return StoredAction(
        asked, state, found[2].decode(errors="replace"), heard, step, done, passed, left, started, number, last_ms,
        last, found[9].decode(), position.decode(errors="replace"), problem.decode(errors="replace"),
    )  # fmt: skip


def statuses(reply: Sequence[Any]) -> list[ActionStatus]:
    """Read the reply of `actions`: the newest first."""
    now, flat = float(reply[0]), reply[1]
    found = []
    for name, raw in zip(flat[::2], flat[1::2], strict=True):
        if name and (each := stored(raw)) is not None:
            found.append((each.number, each.status(name.decode(errors="replace"), now)))
    return [each for _, each in sorted(found, key=lambda row: row[0], reverse=True)]
