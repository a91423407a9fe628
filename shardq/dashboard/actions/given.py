"""The arguments of an action: a queue, and in it a tenant, a message, a schedule, another action, or a filter.

`Takes` says which of them an action has, and reads them from a query. `Given` holds them. A query comes from outside,
so it is checked before anything is asked of Redis.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

from shardq.arguments import check_name
from shardq.dashboard.actions.refused import ActionRefused, sentence
from shardq.errors import ConfigError
from shardq.model.where import MAX_TEXT, Where, WhereState
from shardq.protocol.bodies import text_or_bytes
from shardq.sharding import MAX_SHARD_KEY, key_bytes

MAX_NAME: Final = 256
"""Letters of the id of an action, and of the name of a schedule."""
MAX_ID: Final = 3200
"""Letters of the id of a message: the shard key is a part of that of one that was held back, three letters a byte."""

TENANT: Final = ("shard_key", "shard_key_base64")
"""How a tenant is named: as text, or one that is no text as base64."""

FILTER: Final = ("task", "error", "reason", "older_than", "newer_than", "state")
"""The parts of a filter, besides the tenant."""

_MAX_LENGTHS: Final[Mapping[str, int]] = {
    "queue": 200, "shard_key": MAX_SHARD_KEY, "shard_key_base64": 2 * MAX_SHARD_KEY, "message_id": MAX_ID,
    "schedule": MAX_NAME, "id": MAX_NAME, "task": MAX_TEXT, "error": MAX_TEXT, "reason": MAX_TEXT, "older_than": 40,
    "newer_than": 40, "state": 20,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Given:
    """The subject of an action: `key` is a tenant, `name` that of a message, schedule or action, `where` a filter."""

    queue: str
    key: str | bytes | None = None
    name: str = ""
    where: Where | None = None

    @property
    def tenant(self) -> str | bytes:
        """The tenant, for an action that takes one."""
        if self.key is None:
            raise ActionRefused("Say which tenant, by shard_key.")
        return self.key

    @property
    def filter(self) -> Where:
        """The filter, for an action that takes one."""
        if self.where is None:
            raise ActionRefused("Say which messages: a tenant, a task, an error, or a state.")
        return self.where


@dataclass(frozen=True, slots=True)
class Takes:
    """The parts that an action needs: a tenant (`key`; with `or_all` it may be left out), one `name`, or a filter.

    A filter always has the state `state`, if that is not None.
    """

    key: bool = False
    or_all: bool = False
    name: str = ""
    is_filter: bool = False
    state: WhereState | None = None

    @property
    def known(self) -> frozenset[str]:
        """The names of all that may be said."""
        known = {"queue"}
        if self.key or self.is_filter:
            known.update(TENANT)
        if self.name:
            known.add(self.name)
        if self.is_filter:
            known.update(FILTER if self.state is None else FILTER[:-1])
        return frozenset(known)

    def read(self, said: Mapping[str, str]) -> Given:
        """Return what was said. Refused if it is not what the action takes."""
        for name, value in said.items():
            if name not in self.known:
                raise ActionRefused(f"This action takes no {name[:40]!r}.")
            if len(value) > _MAX_LENGTHS[name]:
                raise ActionRefused(f"{name} may have {_MAX_LENGTHS[name]:,} letters.")
        try:
            return self._read(said)
        except (ConfigError, UnicodeError) as error:
            raise ActionRefused(sentence(str(error))) from None

    def _read(self, said: Mapping[str, str]) -> Given:
        queue, key = check_name(said.get("queue", "")), _key(said)
        if self.key and key is None and not self.or_all:
            raise ActionRefused("Say which tenant, by shard_key.")
        name = said.get(self.name, "") if self.name else ""
        if self.name and not name:
            raise ActionRefused(f"Say which {self.name}.")
        return Given(queue, key, name, self._where(said, key) if self.is_filter else None)

    def _where(self, said: Mapping[str, str], key: str | bytes | None) -> Where:
        parts: dict[str, Any] = {name: said[name] for name in ("task", "error", "reason") if said.get(name)}
        for name in ("older_than", "newer_than"):
            if said.get(name):
                parts[name] = _seconds(name, said[name])
        state = self.state or said.get("state") or None
        if state is not None and state not in get_args(WhereState):
            raise ActionRefused(f"A message is {', '.join(get_args(WhereState))}.")
        where = Where(tenant=key, state=state, **parts)  # type: ignore[arg-type]
        if where.is_empty:
            raise ActionRefused("Say which messages: a tenant, a task, an error, or a state.")
        return where


def _key(said: Mapping[str, str]) -> str | bytes | None:
    if said.get("shard_key_base64"):
        try:
            raw = base64.b64decode(said["shard_key_base64"], validate=True)
        except (binascii.Error, ValueError):
            raise ActionRefused("shard_key_base64 is no base64.") from None
        key: str | bytes = text_or_bytes(raw)
    elif said.get("shard_key"):
        key = said["shard_key"]
    else:
        return None
    key_bytes(key)  # it is checked
    return key


def _seconds(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ActionRefused(f"{name} is a number of seconds.") from None
