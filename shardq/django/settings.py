"""The settings of a backend: QUEUES and OPTIONS of an entry of TASKS. It needs no Django."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

import msgspec

from shardq.arguments import check_name, iterable, mapping, seconds, text, whole
from shardq.backoff import Backoff
from shardq.drivers import Target
from shardq.errors import ConfigError
from shardq.model import QueueConfig, QueueSettings
from shardq.tasks.task import Retries

DEFAULT_URL: Final = "redis://localhost:6379"
RESULT_TTL: Final = 86_400.0
"""Seconds for which results are kept, unless OPTIONS say otherwise."""
MAX_NAME: Final = 20
"""Characters of a queue's name: a result's id has it, and Django's ids have fewer than 64."""
MAX_TASK_WEIGHT: Final = 1000


class OwnOptions(TypedDict, total=False):
    """The keys that OPTIONS may have besides the settings of a queue."""

    url: str
    timeout: float
    prefix: str
    shard_key: str
    retries: int
    backoff: Backoff
    queues: Mapping[str, Mapping[str, Any]]
    tasks: Sequence[str]


class BackendSettings(msgspec.Struct, frozen=True):
    """How a backend reaches Redis, and the names, settings and weights of its queues, by Django's names of these.

    For other queues, if Django may use any, *prefix* and *common* say the same.
    """

    url: str
    timeout: float
    prefix: str
    shard_key: str | None
    retries: Retries
    common: dict[str, Any]
    queues: dict[str, dict[str, Any]]
    weights: dict[str, int]
    modules: tuple[str, ...]

    @classmethod
    def of(cls, queues: list[str], options: Mapping[str, Any]) -> BackendSettings:
        """Read the QUEUES and OPTIONS of Django's settings. ConfigError names what is wrong."""
        rest = dict(mapping("OPTIONS", options, "names to settings"))
        own = {name: rest.pop(name) for name in OwnOptions.__annotations__ if name in rest}
        rest.setdefault("result_ttl", RESULT_TTL)
        special = mapping("OPTIONS['queues']", own.get("queues", {}), "queues to settings")
        if unknown := sorted(set(special) - set(queues)):
            raise ConfigError(f"OPTIONS['queues'] names {unknown[0]!r}, which QUEUES does not")
        found = cls(
            url=_checked_url(own.get("url") or os.environ.get("SHARDQ_URL") or DEFAULT_URL),
            timeout=seconds("OPTIONS['timeout']", own.get("timeout", 10.0), 0.01, 3600),
            prefix=text("OPTIONS['prefix']", own.get("prefix", "")),
            shard_key=text("OPTIONS['shard_key']", own["shard_key"]) if "shard_key" in own else None,
            retries=retries_of(own.get("retries"), own.get("backoff"), "OPTIONS"),
            common=_checked("OPTIONS", rest),
            queues={},
            weights={},
            modules=tuple(
                text("OPTIONS['tasks']", each) for each in iterable("OPTIONS['tasks']", own.get("tasks", ()), "modules")
            ),
        )
        for name in queues:
            more = dict(mapping(f"OPTIONS['queues'][{name!r}]", special.get(name, {}), "names to settings"))
            found.weights[name] = whole(f"the weight of queue {name!r}", more.pop("weight", 1), 1, MAX_TASK_WEIGHT)
            found.queues[name] = _checked(f"OPTIONS['queues'][{name!r}]", rest | more)
            found.name_of(name)
            found.check_retries(found.retries, name, "OPTIONS")
        return found

    def name_of(self, queue: str) -> str:
        """Return the name in Redis of one of Django's queues. ConfigError if it cannot have it."""
        if len(queue) > MAX_NAME or ":" in queue:
            raise ConfigError(f"queue {queue!r}: its name may have {MAX_NAME} characters at most, and no colon")
        return check_name(self.prefix + queue)

    def settings_of(self, queue: str) -> dict[str, Any]:
        """Return the settings of one of Django's queues."""
        return self.queues.get(queue, self.common)

    def check_retries(self, retries: Retries, queue: str, where: str) -> None:
        """ConfigError if a queue does not deliver a message that often."""
        retries.check_deliveries(where, queue, QueueConfig(**self.settings_of(queue)).max_deliveries)


def retries_of(retries: int | None, backoff: Backoff | None, where: str) -> Retries:
    """Return how often a task is tried. ConfigError for a bad setting.

    Without *retries* an error is final, but a call whose worker died is delivered again, up to `max_deliveries`.
    """
    found = Retries(retries=retries or None, backoff=backoff, give_up_on=() if retries else (BaseException,))
    Retries(retries=retries, backoff=backoff).check(where)
    return found


def _checked_url(url: Any) -> str:
    try:
        Target.parse(url)
    except ConfigError as error:
        raise ConfigError(f"OPTIONS['url']: {error}") from None
    return str(url)


def _checked(where: str, settings: dict[str, Any]) -> dict[str, Any]:
    if unknown := sorted(set(settings) - set(QueueSettings.__annotations__)):
        raise ConfigError(f"{where} has {unknown[0]!r}, which is no option of the backend and no setting of a queue")
    QueueConfig(**settings)
    return settings
