"""Message: where it is, what happened, and what comes next."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from shardq.dashboard import numbers
from shardq.dashboard.fitting import fitted
from shardq.dashboard.heading import heading
from shardq.dashboard.marked import Linked, cut, here, spelled, two_in
from shardq.dashboard.names import address_of, args_of, shown
from shardq.dashboard.numbers import NumbersLook
from shardq.dashboard.payloads import MAX_READ, payload_text
from shardq.dashboard.scene import AskedScene, NotThere
from shardq.dashboard.source import FRESH_SECONDS, SceneSource
from shardq.dashboard.story import Story, story
from shardq.dashboard.survey import look_with
from shardq.errors import ConfigError, MessageNotFound, QueueMissing
from shardq.model.failure import Failure
from shardq.model.message import MessageId
from shardq.model.status import MessageStatus
from shardq.model.wording import number, plural, size, span
from shardq.ops.inspect.status import whole_status
from shardq.outlook.message import MessageCase, message_said, next_of, progress_said
from shardq.outlook.names import name_of
from shardq.outlook.said import Said, said
from shardq.outlook.sentence import At, Bold, Parts
from shardq.outlook.story import KIND_NAMES, LAST_KINDS, ToldEvent, story_of
from shardq.partitions.over import of_message
from shardq.protocol.ids import split
from shardq.sharding import key_bytes

MAX_TEXT: Final = 500
"""Letters of an error's text, and of a header."""
MAX_TRACE: Final = 4000
"""Letters of a traceback."""
MAX_HEADERS: Final = 16
SLOW_FRESH_SECONDS: Final = 10.0
"""Seconds for which a payload and settings count as those of now."""
HIDDEN_PAYLOAD: Final = "hidden: start the page with --payloads to show it"
TRACE: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


async def message(source: SceneSource, asked: AskedScene) -> dict[str, Any]:
    """Return where a message is. NotThere if there is no such queue, or nothing is known of such a message."""
    name, message_id = two_in(asked)
    look = await numbers.look(source, name)
    status = await _status(source, name, message_id)
    told = await story(source, name, message_id)
    if status.state == "unknown" and not told.events and told.looked_until is None:
        raise NotThere(f"{name} has no message {name_of(message_id, 80)}: it was settled, or never was.")
    case = await _case(source, name, status, look)
    group = _group_of(look, status)
    is_over = status.state in ("unknown", "done")
    scene = {
        "said": heading(_ended(told, status.time) or message_said(case) if is_over else message_said(case)),
        "now": status.time,
        "queue": name,
        "id": status.message_id,
        "state": status.state,
        "who": None if status.shard_key is None else args_of(status.shard_key),
        "can_cancel": status.state in ("waiting", "held_back", "delayed", "in_flight") and not status.cancelled,
        "can_hasten": status.state == "delayed" and bool(status.deliveries),
        "can_redrive": status.state == "dead",
        "story": [_event(each) for each in _events(told, status)],
        "story_note": _note(told),
        "next": None if is_over else _next(case),
        "facts": [[label, spelled(parts)] for label, parts in _facts(status, case, told, name)],
        "payload": await _payload(source, name, status),
        "headers": _headers(source, status),
        "error": _error(status, group),
        "more_events": 0,
    }
    return fitted(scene, {"story": "more_events"})


async def _status(source: SceneSource, queue: str, message_id: str) -> MessageStatus:
    admin = source.client.queue(queue, create=False)
    try:
        MessageId.parse(split(message_id)[0], MessageNotFound)
        return await source.shared(("status", queue, message_id), lambda: admin.status(message_id))
    except (MessageNotFound, ConfigError):  # or of a partition that is not there
        raise NotThere(f"No message can have the id {name_of(message_id, 80)}.") from None
    except QueueMissing:
        raise NotThere(f"There is no queue {queue}.") from None


async def _case(source: SceneSource, queue: str, status: MessageStatus, look: NumbersLook) -> MessageCase:
    """Return what is known of it: of its tenant, too, if something is before it."""
    admin = source.client.queue(queue, create=False)
    config = await source.shared(("settings", queue), admin.settings, fresh=SLOW_FRESH_SECONDS)
    if status.state in ("waiting", "held_back") and status.shard_key:
        look = await look_with(source, look, (key_bytes(status.shard_key),))
    return MessageCase(status, look.outlook, config.max_deliveries)


def _ended(told: Story, now: float) -> Said | None:
    """Return how it ended, if the journal has that."""
    last = told.events[-1] if told.events else None
    if last is None or last.kind not in LAST_KINDS:
        return None
    by = f" by {name_of(last.by or last.client)}" if last.by or last.client else ""
    words = "It is " if last.kind == "acked" else "It was "
    verb = "done" if last.kind == "acked" else KIND_NAMES[last.kind].lower()
    line: Parts = [words, Bold(verb), by, ", ", At(last.time, now), "."]
    if last.kind in ("expired", "vanished"):
        line = ["It ", Bold(verb), ", ", At(last.time, now), "."]
    return said("good" if last.kind == "acked" else "warn", line, "Nothing of it is kept but what the journal has.")


def _events(told: Story, status: MessageStatus) -> Sequence[ToldEvent]:
    """Return what happened, as far as anybody noted it."""
    if told.events:
        return story_of(told.events)
    if status.written_at is None:
        return []
    found = [ToldEvent(status.written_at, "written", KIND_NAMES["written"], [], "", "written")]
    if status.since is not None and status.state == "dead":
        found.append(ToldEvent(status.since, "dead", KIND_NAMES["dead"], ["it is a dead letter"], "", "failed"))
    return found


def _note(told: Story) -> str:
    """Return what is missing of the story."""
    if not told.is_kept:
        return "This queue keeps no journal, so nobody noted more: the setting journal begins one."
    if told.looked_until is not None:
        return "The journal is long, and is still being looked through."
    if told.begins_late:
        return "The journal does not reach back to its beginning: older events are dropped."
    return ""


def _event(event: ToldEvent) -> dict[str, Any]:
    return {
        "at": event.at,
        "kind": event.kind,
        "says": event.says,
        "text": spelled(event.text),
        "client": cut(event.client, MAX_TEXT),
        "css": event.css,
    }


def _next(case: MessageCase) -> dict[str, Any] | None:
    found = next_of(case)
    if found is None:
        return None
    return {"at": found.at, "text": found.text, "is_certain": found.is_certain}


def _facts(status: MessageStatus, case: MessageCase, told: Story, queue: str) -> list[tuple[str, Parts]]:
    """Return what is known of it, by name."""
    now = status.time
    key = status.shard_key if status.shard_key is not None else _key_in(told)
    task = status.task or next((each.task for each in told.events if each.task), "")
    written = status.written_at or MessageId.parse(split(status.message_id)[0]).written_ms / 1000
    rows: list[tuple[str, Parts | None]] = [
        ("Task", [cut(task, MAX_TEXT)] if task else None),
        ("Tenant", None if key is None or key == "" else [_link(queue, key)]),
        ("Written", [At(written, now), f", {span(max(0.0, now - written))} ago"]),
        ("Tries", _tries(status, case)),
        ("Deadline", None if status.deadline is None else ["ends at ", At(status.deadline, now)]),
        ("Progress", None if status.progress is None else [progress_said(status.progress, now)]),
        ("Stream", None if status.stream is None else [number(status.stream)]),
        ("Size of its result" if status.state == "done" else "Size", _size(status)),
        ("Trace", _trace(status)),
    ]
    return [(label, parts) for label, parts in rows if parts]


def _link(queue: str, key: str | bytes) -> Linked:
    return Linked(shown(key), here(queue, f"/tenant/{quote(address_of(key), safe='')}"))


def _key_in(told: Story) -> str | bytes | None:
    return next((each.shard_key for each in told.events if each.shard_key is not None), None)


def _tries(status: MessageStatus, case: MessageCase) -> Parts | None:
    if status.deliveries is None:
        return None
    most = f" of {number(case.max_deliveries)}" if case.max_deliveries else ", and there is no limit"
    return [f"{number(status.deliveries)}{most}"]


def _size(status: MessageStatus) -> Parts | None:
    return None if status.size is None else [size(status.size) if status.size >= 1000 else plural(status.size, "byte")]


def _trace(status: MessageStatus) -> Parts | None:
    found = TRACE.fullmatch(status.headers.get("traceparent", ""))
    return [found[1]] if found else None


async def _payload(source: SceneSource, queue: str, status: MessageStatus) -> dict[str, Any]:
    """Return the payload if it may be shown, else why not."""
    if status.state in ("unknown", "done"):
        return {"text": "", "why": "gone with the message"}
    if not source.payloads:
        return {"text": "", "why": HIDDEN_PAYLOAD}
    if status.size is None or status.size > MAX_READ:
        how_large = "its size is not known" if status.size is None else f"it has {size(status.size)}"
        return {"text": "", "why": f"{how_large}, more than is shown here"}
    state = source.client.queue(queue, create=False).state

    async def ask() -> str:
        whole = await source.client.run(of_message(state, status.message_id, whole_status))
        return payload_text(source.client.codecs, whole.tag, whole.body)

    return {"text": await source.shared(("payload", queue, status.message_id), ask, fresh=5 * FRESH_SECONDS), "why": ""}


def _headers(source: SceneSource, status: MessageStatus) -> list[list[str]]:
    """Return its headers; the values only where payloads are shown, since they may say as much."""
    names = sorted(status.headers)[:MAX_HEADERS]
    shown_values = {each: cut(status.headers[each], MAX_TEXT) if source.payloads else "" for each in names}
    return [[cut(each, MAX_TEXT), value] for each, value in shown_values.items()]


def _group_of(look: NumbersLook, status: MessageStatus) -> Failure | None:
    """Return the failure that its last try belongs to: the named one, else one of its task and error."""
    alike = [
        each
        for each in look.facts.failures
        if (each.task, each.error_type) == (status.task, status.error_type) and each.trace
    ]
    return next((each for each in alike if each.newest == status.message_id), alike[0] if alike else None)


def _error(status: MessageStatus, group: Failure | None) -> dict[str, Any] | None:
    """Return its last error: class and text, and frames of a traceback, without values."""
    if not status.last_error and not status.error_type:
        return None
    if group is None:
        trace, whose = "", "no traceback is kept of it"
    elif group.newest == status.message_id:
        trace, whose = group.trace[-MAX_TRACE:], "frames without values"
    else:
        trace, whose = group.trace[-MAX_TRACE:], "frames of the newest message that failed so, without values"
    return {
        "type": cut(status.error_type, MAX_TEXT),
        "text": cut(status.last_error, MAX_TEXT),
        "trace": trace,
        "whose": whose,
    }
