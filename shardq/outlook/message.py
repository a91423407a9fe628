"""Where one message is and what comes next, in one sentence."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from shardq.model.outlook import Outlook, TenantOutlook
from shardq.model.status import MessageStatus, Progress
from shardq.model.wording import number, plural, span
from shardq.outlook.names import name_of
from shardq.outlook.said import Said, said
from shardq.outlook.sentence import Bold, Parts

MAX_NOTE: Final = 500
"""Letters of a note on how far it is."""

_DEAD: Final = {
    "max_deliveries": "it had all of its deliveries",
    "deadline": "its deadline was over",
}


class Next(msgspec.Struct, frozen=True):
    """The next event of a message: a `text`, and `at` which time of the server, as far as that is known.

    `is_certain` is False where the time is an estimate.
    """

    kind: Literal["delivered", "tried", "due", "lease_ends", "resumed", "dropped"]
    text: str
    at: float | None = None
    is_certain: bool = True


class MessageCase(msgspec.Struct, frozen=True):
    """The known facts of one message: its status, the outlook of the queue, and how often it is delivered at most.

    The outlook is one that was asked for the message's shard key; None where nobody asked. `max_deliveries` is the
    setting, 0 where there is no limit.
    """

    status: MessageStatus
    outlook: Outlook | None = None
    max_deliveries: int = 0

    @property
    def now(self) -> float:
        """The instant of the status."""
        return self.status.time

    @property
    def tenant(self) -> TenantOutlook | None:
        """The outlook of its tenant."""
        rows = self.outlook.tenants if self.outlook else ()
        return next((each for each in rows if each.shard_key == self.status.shard_key), None)

    @property
    def is_read(self) -> bool:
        """Whether anybody reads the queue, as far as one knows."""
        return self.outlook is None or self.outlook.is_read

    @property
    def wait(self) -> float | None:
        """In how many seconds it is delivered; None if nobody knows, or never as things stand."""
        status, outlook, tenant = self.status, self.outlook, self.tenant
        if outlook is None or not outlook.is_read or status.ahead is None:
            return None
        if status.state == "held_back" and tenant is not None and tenant.served_in is not None:
            backlog = sum(tenant.reasons.values()) - tenant.reasons["delay"] - tenant.reasons["retry"]
            pause = max(0.0, (tenant.paused_until or self.now) - self.now)
            return pause + (tenant.served_in - pause) * min(1.0, (status.ahead + 1) / backlog) if backlog else None
        return None


def message_said(case: MessageCase) -> Said:
    """Return where a message is, and what it waits for."""
    status = case.status
    match status.state:
        case "waiting" | "held_back":
            return _waiting(case)
        case "delayed":
            return _delayed(case)
        case "in_flight":
            return _in_flight(case)
        case "dead":
            return _dead(case)
        case "done":
            return _done(case)
    return said(
        "good", ["The queue knows ", Bold("nothing of it"), " any more: it was settled, removed, or never was."]
    )


def _left(case: MessageCase) -> str:
    return span(max(0.0, (case.status.until or case.now) - case.now))


def _name(case: MessageCase) -> str:
    return name_of(case.status.shard_key or "")


def _waiting(case: MessageCase) -> Said:
    status = case.status
    if status.reason == "deadline" or (status.deadline is not None and status.deadline <= case.now):
        return said("warn", ["Its ", Bold("deadline is over"), ": the next read drops it."])
    if status.reason == "max_deliveries":
        return said("warn", ["Its ", Bold("last delivery has ended"), ": the next read makes it a dead letter."])
    if status.reason == "paused":
        end = "until somebody ends the pause" if status.until is None else f"for {_left(case)} more"
        return said("pause", ["It ", Bold("is paused"), f" {end}{_before(case, '; ')}."], _delivered(status))
    if not case.is_read:
        why: Parts = ["It waits for ", Bold("a worker"), f": none reads this queue{_before(case, '; ')}."]
        return said("bad", why, _delivered(status))
    if status.reason == "lease ended":
        return said("warn", ["Its ", Bold("lease has ended"), ", and the next read takes it back."], _delivered(status))
    if status.state == "waiting" and status.stream is None:
        text = " the next reads: it was given back, or has come due."
        return said("good", ["It comes with", Bold(text[:15]), text[15:]], _delivered(status))
    return _in_line(case)


def _before(case: MessageCase, gap: str = "") -> str:
    """Return how many messages come before it, as the end of a sentence."""
    status = case.status
    if status.ahead is None:
        return ""
    of_whom = f"of stream {status.stream}" if status.state == "waiting" else f"of {_name(case)}"
    if not status.ahead:
        return f"{gap}nothing {of_whom} comes before it"
    verb = "comes" if status.ahead == 1 else "come"
    return f"{gap}about {plural(status.ahead, 'message')} {of_whom} {verb} before it"


def _in_line(case: MessageCase) -> Said:
    status = case.status
    what = {"rate": "its tenant's limit of rate", "max_in_flight": "its tenant's limit in flight"}.get(status.reason)
    parts: Parts = ["It waits for ", Bold(what or "its turn"), f": {_before(case)}"]
    if case.wait is not None:
        parts += [", ", Bold(f"about {span(case.wait)}")]
    others = "" if what else "Nothing of other tenants is before it: they have turns of their own. "
    if status.state == "waiting":
        others = "Reads go round all streams, so about as many of each come before it. "
    return said("warn" if what or (case.wait or 0) > 60 else "good", [*parts, "."], others + _delivered(status))


def _delivered(status: MessageStatus) -> str:
    if status.deliveries is None:
        return ""
    if status.deliveries == 0:
        return "It was never delivered."
    error = status.error_type or status.last_error
    when = "" if status.deliveries == 1 else " the last time"
    failed = f", and failed{when} with {name_of(error)}" if error else ""
    return f"It was delivered {_times(status.deliveries)} before{failed}."


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{number(count)} times")


def _delayed(case: MessageCase) -> Said:
    status = case.status
    if status.reason == "max_dead":
        again = f", and is tried again in {_left(case)}."
        second = "The setting max_dead is full: delete dead letters, or allow more."
        return said("warn", ["It waits for ", Bold("room among the dead letters"), again], second)
    if not status.deliveries:
        return said("good", ["It was ", Bold("written for later"), ", and is due ", Bold(f"in {_left(case)}"), "."])
    parts: Parts = ["It ", Bold(f"failed {_times(status.deliveries)}")]
    if status.last_error or status.error_type:
        first, last = _with(status.deliveries)
        parts += [first, Bold(name_of(status.error_type or status.last_error)), last]
    parts += [" and is tried again ", Bold(f"in {_left(case)}"), "."]
    return said("bad", parts, _tries_left(case))


def _with(count: int) -> tuple[str, str]:
    """Return what stands before, and behind, the error with which it failed *count* times."""
    return (" with ", "") if count == 1 else (", the last time with ", ",")


def _tries_left(case: MessageCase) -> str:
    if not case.max_deliveries:
        return "It is tried as often as it needs: the queue has no max_deliveries."
    left = max(0, case.max_deliveries - (case.status.deliveries or 0))
    return f"{plural(left, 'try', 'tries')} {'is' if left == 1 else 'are'} left; then it is a dead letter."


def _in_flight(case: MessageCase) -> Said:
    status = case.status
    count = f", for the {ordinal(status.deliveries)} time" if (status.deliveries or 0) > 1 else ""
    if status.cancelled:
        return said("warn", ["It is ", Bold("cancelled"), ", and is still worked on: it is not delivered again."])
    parts: Parts = ["It is ", Bold("worked on"), f"{count}."]
    lease = "" if status.until is None else f"Its lease ends in {_left(case)} unless its worker extends it. "
    return said("good", parts, (lease + _tried(status)).strip())


def _tried(status: MessageStatus) -> str:
    return f"It failed before: {name_of(status.error_type or status.last_error)}." if status.last_error else ""


def ordinal(count: int | None) -> str:
    """Return a number that says which one it is.

    >>> ordinal(1), ordinal(2), ordinal(13), ordinal(23)
    ('1st', '2nd', '13th', '23rd')
    """
    count = count or 0
    ending = "th" if 10 <= count % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{number(count)}{ending}"


def _dead(case: MessageCase) -> Said:
    status = case.status
    since = span(max(0.0, case.now - (status.since or case.now)))
    why = _DEAD.get(status.reason, name_of(status.reason) if status.reason else "")
    error = name_of(status.error_type or status.last_error) if status.last_error or status.error_type else ""
    parts: Parts = ["It is ", Bold("a dead letter"), f" for {since}", f": {why}" if why else "", "."]
    is_new = error and error != why and status.deliveries
    tries = status.deliveries or 0
    second = f"It failed {_times(tries)}{_with(tries)[0]}{error}. " if is_new else ""
    return said("bad", parts, f"{second}It is delivered again only if somebody redrives it.")


def _done(case: MessageCase) -> Said:
    status = case.status
    since = span(max(0.0, case.now - (status.since or case.now)))
    kept = f"Its result was not kept ({status.reason})." if status.reason else f"Its result is kept for {_left(case)}."
    return said("good", ["It is ", Bold("done"), f", since {since}."], kept)


def progress_said(progress: Progress, now: float) -> str:
    """Return how far its handler says that it is, and how long ago it said so."""
    total = "" if progress.total is None else f" of {progress.total:,.15g}"
    note = f": {name_of(progress.note, MAX_NOTE)}" if progress.note else ""
    return f"{progress.done:,.15g}{total}{note} ({span(max(0.0, now - progress.at))} ago)"


def next_of(case: MessageCase) -> Next | None:
    """Return what will happen to it next; None if nothing will by itself."""
    status = case.status
    match status.state:
        case "delayed" if status.reason == "max_dead":
            return Next("due", "tried again to become a dead letter", status.until)
        case "delayed" if status.deliveries:
            return Next("tried", f"tried for the {ordinal(status.deliveries + 1)} time", status.until)
        case "delayed":
            return Next("due", "due", status.until)
        case "in_flight" if status.until is not None:
            return Next(
                "lease_ends", "given to another worker, unless this one settles it or extends its lease", status.until
            )
        case "waiting" | "held_back":
            return _next_of_waiting(case)
    return None


def _next_of_waiting(case: MessageCase) -> Next:
    status = case.status
    if status.reason == "deadline" or (status.deadline is not None and status.deadline <= case.now):
        return Next("dropped", "dropped by the next read")
    if status.reason == "max_deliveries":
        return Next("dropped", "made a dead letter by the next read")
    if not case.is_read:
        return Next("delivered", "delivered once a worker reads this queue")
    if status.reason == "paused" and case.wait is None:
        end = "once somebody ends the pause" if status.until is None else "once the pause ends"
        return Next("resumed", f"delivered {end}", status.until)
    if case.wait is not None:
        return Next("delivered", "delivered, at the present pace", case.now + case.wait, is_certain=False)
    return Next("delivered", "delivered when its turn comes")
