"""Settings: what is set, by whom and until when, and what differs from the file that declares it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import asdict

from shardq import __version__
from shardq.dashboard import numbers
from shardq.dashboard.declaring import Compared, File, compared, file_of
from shardq.dashboard.fitting import fitted
from shardq.dashboard.marked import cut, here, queue_in, said
from shardq.dashboard.scene import AskedScene
from shardq.dashboard.source import SceneSource
from shardq.declared.changes import named
from shardq.model import Control, Controls, Event, Plan, QueueConfig, QueueStats
from shardq.model.wording import plural
from shardq.outlook.findings import Finding, Pause, of_leases, of_pauses, of_reading
from shardq.outlook.names import name_of
from shardq.outlook.sentence import Bold, Parts

MAX_ROWS: Final = 40
"""Pauses, limits and weights that are shown of each kind: those that somebody gave last."""
MAX_PLANS: Final = 64
"""Plans that are shown: as many as a queue may have."""
FEW_QUEUES: Final = 20
"""Queues that are asked each 10 s; of more, each is asked once a minute."""
SLOW_FRESH_SECONDS: Final = 60.0
"""Seconds for which an answer counts as that of now where there are many queues."""
MAX_CHANGES: Final = 40
"""Differences from the file that are shown."""
MAX_QUEUES: Final = 100
"""Queues that are shown: those that differ first."""
MAX_EVENTS: Final = 1000
"""Events of the journal that are looked through for what people changed: the last ones."""
OF_WORKERS: Final = ("joined", "left")
"""Kinds of events that no people did."""
MAX_DONE: Final = 20
"""People's changes that are shown: the last ones."""
MAX_TEXT: Final = 300
"""Letters of a note, or of a line."""


async def settings(source: SceneSource, asked: AskedScene) -> dict[str, Any]:
    """Return the settings of all queues in short, or of one queue in full."""
    return await _all(source) if not asked.parts else await _one(source, queue_in(asked))


async def _one(source: SceneSource, name: str) -> dict[str, Any]:
    stats = await numbers.stats(source, name)
    config, controls = await numbers.settings(source, name), await numbers.controls(source, name)
    file = await file_of(source)
    differs = await compared(source, name, file)
    lines = differs.lines
    findings = await _findings(source, stats, controls)
    done = await _done(source, name, config)
    own = [each for each in asdict(config) if not _is_usual(config, each)]
    scene = {
        "said": said(_heading(own, controls, differs), _tone(differs), _more(differs, file)),
        "now": stats.time,
        "queue": name,
        "settings": _settings(config, stats, file, name),
        "file": _file(file, differs),
        "differences": [{"what": what, "line": cut(line, MAX_TEXT)} for what, line in lines[:MAX_CHANGES]],
        "more_differences": max(0, len(lines) - MAX_CHANGES),
        **_controls(controls),
        "done": [_event(each) for each in done[:MAX_DONE]],
        "journal": config.journal,
        "findings": [_finding(each) for each in findings],
    }  # fmt: skip
    lists = ("paused", "limits", "weights", "differences")
    return fitted(scene, {each: f"more_{each}" for each in lists})


def _heading(own: Sequence[str], controls: Controls, differs: Compared) -> Parts:
    count = len(differs.lines)
    if differs.problem:
        return [Bold("It cannot become"), " what the file declares."]
    if count:
        return [Bold(plural(count, "difference")), " from the file."]
    given = ((controls.paused, "pause"), (controls.limits, "limit"), (controls.weights, "weight"))
    kinds = [plural(len(each), what) for each, what in given if each]
    usual = "setting is not the usual one" if len(own) == 1 else "settings are not the usual ones"
    parts: Parts = [Bold(f"{len(own)} {usual}")] if own else [Bold("All settings"), " are the usual ones"]
    if kinds:
        verb = "stands" if sum(len(each) for each, _ in given) == 1 else "stand"
        parts += ["; ", Bold(" and ".join(kinds)), f" {verb}"]
    return [*parts, ", as the file declares." if differs.is_declared else "."]


def _tone(differs: Compared) -> str:
    return "bad" if differs.problem else "warn" if differs.changes else "good"


def _more(differs: Compared, file: File) -> Parts:
    if differs.problem:
        return [f"{cut(differs.problem, MAX_TEXT)}."]
    if file.problem:
        return [f"The file cannot be read: {cut(file.problem, MAX_TEXT)}."]
    if differs.changes:
        return ["shardq apply makes them what the file says; with --dry-run it shows the same lines."]
    if file.path is not None and not differs.is_declared:
        return ["The file does not name this queue."]
    return []


def _file(file: File, differs: Compared) -> dict[str, Any] | None:
    """Return what is to be known of the file: its name, without the folders of the machine that serves the page."""
    if file.path is None:
        return None
    return {"name": file.path.name, "declared": differs.is_declared, "problem": cut(file.problem, MAX_TEXT)}


async def _all(source: SceneSource) -> dict[str, Any]:
    """Return of each queue what is set in short, those that differ from the file first."""
    names = await numbers.queues(source)
    file = await file_of(source)
    pace = numbers.CALM_FRESH_SECONDS if len(names) <= FEW_QUEUES else SLOW_FRESH_SECONDS
    looked = names[: numbers.MAX_QUEUES]
    rows = await numbers.of_each(looked, lambda name: _row(source, name, file, pace))
    missing = sorted({each.name for each in file.declaration.queues} - {*names}) if file.declaration else []
    found = sorted(rows.values(), key=lambda row: (not row["problem"], -row["differences"], row["queue"]))
    stats = await numbers.of_each(names[:1], lambda name: numbers.stats(source, name, numbers.CALM_FRESH_SECONDS))
    differ = [each for each in found if each["differences"] or each["problem"]]
    scene = {
        "said": said(_heading_of_all(len(names), differ, missing, file), "warn" if differ or missing else "good"),
        "now": max((each.time for each in stats.values()), default=0.0),
        "queue": None,
        "queues": found[:MAX_QUEUES],
        "more": max(0, len(found) - MAX_QUEUES) + len(names) - len(looked),
        "missing": missing[:MAX_QUEUES],
        "more_missing": max(0, len(missing) - MAX_QUEUES),
        "file": _file(file, Compared()),
        "page": {"version": __version__, "payloads": source.payloads},
    }
    return fitted(scene, {"queues": "more", "missing": "more_missing"})


def _heading_of_all(count: int, differ: Sequence[Mapping[str, Any]], missing: Sequence[str], file: File) -> Parts:
    if file.problem:
        return [Bold("The file cannot be read"), f": {cut(file.problem, MAX_TEXT)}."]
    if not count and not missing:
        return ["There is no queue yet."]
    if not differ and not missing:
        queues = plural(count, "queue")
        return [Bold(queues), "."] if file.path is None else [Bold(queues), ", and none differs from the file."]
    parts: Parts = []
    if differ:
        of = f" of {plural(count, 'queue')} {'differs' if len(differ) == 1 else 'differ'} from the file"
        parts += [Bold(f"{len(differ):,}"), of]
    if missing:
        parts += [", and " if differ else "", Bold(plural(len(missing), "queue")), " of the file"]
        parts.append(" is not there" if len(missing) == 1 else " are not there")
    return [*parts, "."]


async def _row(source: SceneSource, name: str, file: File, pace: float) -> dict[str, Any]:
    config = await numbers.settings(source, name, pace)
    controls = await numbers.controls(source, name, pace)
    differs = await compared(source, name, file, pace)
    own = [f"{each}={_shown(getattr(config, each))}" for each in asdict(config) if not _is_usual(config, each)]
    return {
        "queue": name,
        "to": here(name, "/settings"),
        "streams": config.streams,
        "own": cut(", ".join(own), MAX_TEXT),
        "set": len(own),
        "paused": len(controls.paused),
        "limits": len(controls.limits),
        "weights": len(controls.weights),
        "plans": len(controls.plans),
        "declared": differs.is_declared,
        "differences": len(differs.lines),
        "problem": cut(differs.problem, MAX_TEXT),
    }


def _is_usual(config: QueueConfig, name: str) -> bool:
    return bool(getattr(config, name) == getattr(QueueConfig(), name))


def _settings(config: QueueConfig, stats: QueueStats, file: File, name: str) -> list[dict[str, Any]]:
    """Return each setting: its value, its default, and the file's value, if that is another."""
    declared = file.settings_of(name)
    usual, found = asdict(QueueConfig()), []
    for setting, value in asdict(config).items():
        found.append({
            "name": setting, "value": _shown(value), "usual": _shown(usual[setting]), "set": value != usual[setting],
            "file": _shown(declared[setting]) if setting in declared else None,
        })  # fmt: skip
    found.sort(key=lambda row: not row["set"])
    return found


def _shown(value: object) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _controls(controls: Controls) -> dict[str, Any]:
    paused = [{**_control(each, key), "what": "paused"} for key, each in _newest(controls.paused)]
    limits = [{**_control(each, key), "what": named(each.limits)} for key, each in _newest(controls.limits)]
    weights = [{**_control(each, key), "what": str(each.weight)} for key, each in _newest(controls.weights)]
    plans = [_plan(name, each) for name, each in controls.plans.items()]
    return {
        "paused": paused[:MAX_ROWS],
        "more_paused": max(0, len(paused) - MAX_ROWS),
        "limits": limits[:MAX_ROWS],
        "more_limits": max(0, len(limits) - MAX_ROWS),
        "weights": weights[:MAX_ROWS],
        "more_weights": max(0, len(weights) - MAX_ROWS),
        "plans": plans[:MAX_PLANS],
    }


def _newest(given: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    return sorted(given.items(), key=lambda item: -(item[1].since or 0.0))


def _control(control: Control, key: str | bytes | None) -> dict[str, Any]:
    return {
        "key": key if isinstance(key, str) else None,
        "name": "" if key is None else name_of(key),
        "until": None if math.isinf(control.until) else control.until,
        "by": name_of(control.by) if control.by else "",
        "note": cut(control.note, MAX_TEXT),
        "since": control.since,
    }


def _plan(name: str, plan: Plan) -> dict[str, Any]:
    return {"name": name, "what": named(plan), "weight": plan.weight, "tenants": plan.tenants}


async def _done(source: SceneSource, name: str, config: QueueConfig) -> list[Event]:
    """Return what people changed last, the newest first, as far as the journal tells."""
    if not config.journal:
        return []
    queue = source.client.queue(name, create=False)

    async def ask() -> list[Event]:
        latest = (await queue.journal(1, after=2**52)).latest
        page = await queue.journal(MAX_EVENTS, after=max(0, latest - MAX_EVENTS))
        return [each for each in page.events if not each.message_id and each.kind not in OF_WORKERS]

    found = await numbers.allowed(numbers.of_queue(source, "changed", name, ask, numbers.CALM_FRESH_SECONDS)) or []
    return found[::-1]


def _event(event: Event) -> dict[str, Any]:
    return {
        "number": event.number,
        "time": event.time,
        "kind": event.kind,
        "key": event.shard_key if isinstance(event.shard_key, str) else None,
        "name": name_of(event.shard_key) if event.shard_key is not None else "",
        "values": cut(" ".join(f"{name}={value}" for name, value in event.values.items()), MAX_TEXT),
        "until": event.due if event.due is not None and math.isfinite(event.due) else None,
        "by": name_of(event.by) if event.by else "",
        "note": cut(event.note, MAX_TEXT),
    }


async def _findings(source: SceneSource, stats: QueueStats, controls: Controls) -> list[Finding]:
    """Return what `shardq server doctor` finds in this queue."""
    name = stats.queue
    found: list[Finding] = []
    if await numbers.allowed(numbers.is_unread(source, name)):
        found += of_reading(name, await numbers.verdict(source, name), stats.backlog)
    found += of_leases(name, stats.expired, max(stats.delivered, stats.written))
    pauses = [Pause(None, stats.paused_since, stats.paused_until, stats.paused_by, stats.paused_note)]
    pauses += [
        Pause(key, each.since, each.until, each.by, each.note)
        for key, each in controls.paused.items()
        if key is not None
    ]
    return [*found, *of_pauses(name, pauses, stats.time)]


def _finding(finding: Finding) -> dict[str, Any]:
    return {"name": finding.name, "line": cut(finding.line, MAX_TEXT), "mend": cut(finding.mend, MAX_TEXT)}
