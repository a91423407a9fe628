"""Failures: what fails since when, for whom, where in the code, and whether to send dead letters again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2s
from typing import Any, Final

from shardq.dashboard import numbers
from shardq.dashboard.actions import actions_of
from shardq.dashboard.fitting import fitted
from shardq.dashboard.marked import cut, queue_in, said
from shardq.dashboard.names import address_of
from shardq.dashboard.scene import AskedScene
from shardq.dashboard.source import SceneSource
from shardq.dashboard.verdicts import bad_news
from shardq.errors import ConfigError, ShardqError
from shardq.model.failure import Failure
from shardq.model.peeked import PeekedMessage, PeekedPage
from shardq.model.stats import QueueStats
from shardq.model.status import MessageStatus
from shardq.model.where import Where
from shardq.ops.operate import counting
from shardq.ops.operate.counting import Counted
from shardq.outlook.failing import MANY_TENANTS, RATE, Kind, advice, error_of, fails_of, kind_of, lately, united
from shardq.outlook.names import name_of
from shardq.outlook.sentence import Bold
from shardq.partitions import surveys
from shardq.partitions.over import over

MAX_GROUPS: Final = 50
"""Groups that are shown: those that fail most."""
MAX_ACTIONS: Final = 5
"""Actions that are shown: what runs, then what ran last."""
MAX_LETTERS: Final = 8
"""Dead letters of the chosen group that are shown."""
MAX_LOOKED: Final = 200
"""Dead letters of the queue that are looked through for these: the oldest ones."""
GLANCE: Final = 0.1
"""Seconds for which messages of the chosen group are counted that wait for their next try."""
MAX_NAME: Final = 200
"""Letters of the name of a task, or of the reason of a dead letter."""
MAX_TEXT: Final = 500
"""Letters of an error's text."""
MAX_TRACE: Final = 4000
"""Letters of a traceback."""


async def failures(source: SceneSource, asked: AskedScene) -> dict[str, Any]:
    """Return the groups of what fails, the one that was chosen in full, and the actions under way."""
    name = queue_in(asked)
    stats = await numbers.stats(source, name)
    groups, fails = await _groups(source, name)
    actions = await numbers.allowed(actions_of(source, name)) or []
    shown = groups[:MAX_GROUPS]
    chosen = next((each for each in groups if key_of(each) == asked.query.get("group")), groups[0] if groups else None)
    if chosen is not None and chosen not in shown:
        shown[-1] = chosen
    scene = {
        "said": _said(name, groups, fails, stats),
        "now": stats.time,
        "queue": name,
        "dead": stats.dead,
        "groups": [_group(each, fails) for each in shown],
        "more": len(groups) - len(shown),
        "chosen": None if chosen is None else await _chosen(source, name, chosen, fails, stats),
        "actions": sorted(actions, key=lambda each: not each["live"])[:MAX_ACTIONS],
    }
    return fitted(scene, {"groups": "more"})


async def _groups(source: SceneSource, name: str) -> tuple[list[Failure], frozenset[Kind]]:
    """Return what fails, or failed, and which of it fails now."""
    facts = (await numbers.look(source, name)).facts
    return united(facts.failures), fails_of(facts)


def _said(name: str, groups: Sequence[Failure], fails: Collection[Kind], stats: QueueStats) -> dict[str, Any]:
    if not groups:
        return said([Bold("Nothing fails"), f" in {name}, and nothing failed lately."], "good")
    is_left = any(each.dead for each in groups)
    told, tone = bad_news(lately(groups, fails, stats.time)), "bad" if fails else "warn" if is_left else "good"
    return said(told, tone, advice(groups, fails, stats.retrying))


def key_of(failure: Failure) -> str:
    """Return a short name of a group, by which a person chooses it: the same as long as the group is there."""
    told = f"{failure.task}\0{error_of(failure)}".encode(errors="surrogatepass")
    return blake2s(told, digest_size=8).hexdigest()


def _group(failure: Failure, fails: Collection[Kind]) -> dict[str, Any]:
    return {
        "key": key_of(failure),
        "task": cut(failure.task, MAX_NAME),
        "error": cut(error_of(failure), MAX_NAME),
        "reason": cut(failure.reason, MAX_NAME),
        "recent": failure.recent,
        "fails": kind_of(failure) in fails,
        "retried": failure.retried,
        "dead": failure.dead,
        "tenants": failure.tenants_lately,
        "first": failure.first,
        "last": failure.last,
        "minutes": failure.minutes,
    }


async def _chosen(
    source: SceneSource, name: str, failure: Failure, fails: Collection[Kind], stats: QueueStats
) -> dict[str, Any]:
    newest = await _status(source, name, failure.newest)
    others = failure.tenants_lately - len(failure.tenants)
    return {
        **_group(failure, fails),
        "trace": failure.trace[-MAX_TRACE:],
        "why": "" if failure.trace else _why_no_trace(failure),
        "whose": [{"key": address_of(each), "name": name_of(each)} for each in failure.tenants],
        "others": max(0, others),
        "are_many": failure.tenants_lately >= MANY_TENANTS,
        "newest": {
            "id": failure.newest,
            "state": newest.state if newest else "unknown",
            "text": cut(newest.last_error, MAX_TEXT) if newest else "",
            "deliveries": newest.deliveries if newest else None,
        },
        "letters": await _letters(source, name, failure) if failure.dead else [],
        "where": _filter(failure),
        "waiting": await _waiting(source, name, failure) if stats.retrying else 0,
        "rate": RATE,
    }


async def _letters(source: SceneSource, name: str, failure: Failure) -> list[dict[str, Any]]:
    """Return dead letters of a group among the oldest ones of the queue."""
    queue = source.client.queue(name, create=False)

    async def ask() -> PeekedPage:
        return await queue.peek(MAX_LOOKED, state="dead")

    page = await numbers.allowed(numbers.of_queue(source, "letters", name, ask, numbers.CALM_FRESH_SECONDS))
    found = [
        each
        for each in (page.messages if page else ())
        if (each.task, each.error_type) == (failure.task, failure.error_type)
    ]
    return [_letter(each) for each in found[:MAX_LETTERS]]


def _letter(letter: PeekedMessage) -> dict[str, Any]:
    return {
        "id": letter.message_id,
        "key": address_of(letter.shard_key),
        "name": name_of(letter.shard_key),
        "died": letter.since,
        "text": cut(letter.reason or letter.last_error, MAX_NAME),
        "deliveries": letter.deliveries,
    }


def _why_no_trace(failure: Failure) -> str:
    if failure.reason == "lease ended":
        return "A lease that ended has no traceback: its worker was gone, or took longer than the lease."
    if failure.reason == "process died":
        return "A process that died has no traceback."
    return "No traceback was sent with it: it was given back with a text, or by an earlier version."


def _filter(failure: Failure) -> dict[str, str]:
    """Return the filter by which an action is about this group, as `Where` takes it."""
    named: dict[str, str] = {"error": failure.error_type} if failure.error_type else {"reason": failure.reason}
    return {"task": failure.task, **named} if failure.task else named


async def _waiting(source: SceneSource, name: str, failure: Failure) -> int | None:
    """Return how many messages of a group wait for their next try; None if they are not counted at a glance."""
    parts = _filter(failure)
    try:
        where = Where(task=parts.get("task"), error=parts.get("error"), reason=parts.get("reason"), state="retrying")
    except ConfigError:  # others may call tasks by longer names than a filter takes
        return None
    state = source.client.queue(name, create=False).state

    async def ask() -> Counted:
        now = (await numbers.stats(source, name)).time
        op = over(state, lambda each: counting.glance(each, "retry_now", where, now, seconds=GLANCE), surveys.counted)
        return await source.client.run(op)

    question = f"retrying {key_of(failure)}"
    found = await numbers.allowed(numbers.of_queue(source, question, name, ask, numbers.CALM_FRESH_SECONDS))
    return found.found if found is not None and found.are_all else None


async def _status(source: SceneSource, name: str, message_id: str) -> MessageStatus | None:
    """Return where the newest message of a group is; None if it is not known any more."""
    try:
        return await source.shared(
            ("status", name, message_id), lambda: source.client.queue(name, create=False).status(message_id)
        )
    except ShardqError:  # the group says what is known of it
        return None
