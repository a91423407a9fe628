"""How a queue is, in one sentence: a test a rule, and which of two that hold speaks."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from shardq.model.failure import Failure
from shardq.model.minute import TaskMinute
from shardq.model.stats import QueueStats
from shardq.model.verdict import SEVERITIES, VERDICT_KINDS, Verdict
from shardq.model.waiter import Waiter
from shardq.model.wording import moment
from shardq.model.worker_status import TaskWork, TenantWork
from shardq.outlook.facts import Facts, ServerMemory
from shardq.outlook.failing import advice, fails_of, lately, united
from shardq.outlook.outlook import outlook_of
from shardq.outlook.sentence import joined
from shardq.outlook.verdict import verdict_of
from tests.outlook.given import NOON, facts, group, minutes, stats, worker

MINUTE = 60.0
HOUR = 3600.0
DAY = 86_400.0
GB = 1024**3


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sentences tell the time of the process's zone."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def verdict(given: Facts) -> Verdict:
    """Return the verdict, of which all that can be is checked."""
    found = verdict_of(given, outlook_of(given))
    assert found.kind in VERDICT_KINDS
    assert found.severity in SEVERITIES
    assert (found.queue, found.time) == (given.stats.queue, NOON)
    assert all(value is None or isinstance(value, int | float | str) for value in found.facts.values())
    at = 0
    for start, end in found.bold:
        assert at <= start < end <= len(found.sentence)
        at = end
    for start, end, then in found.moments:
        assert found.sentence[start:end] == moment(then, NOON)
    for text in (found.sentence, found.second):
        assert text.isprintable()
        assert "  " not in text
        assert len(text) < 400
    return found


def bold(found: Verdict) -> list[str]:
    """Return the parts of a sentence that are bold."""
    return [found.sentence[start:end] for start, end in found.bold]


def gone(at: float, given: QueueStats | None = None, *, is_read: bool = False) -> Facts:
    """Return a queue of which the only worker went silent."""
    given = given or stats(queue="exports", backlog=420, oldest_age=NOON - at)
    rows = (Waiter("acme", held_back=420),)
    return facts(given, rows, workers=(worker(state="gone", heard=at),), is_read=is_read)


def test_all_workers_dead() -> None:
    found = verdict(gone(NOON - 22 * MINUTE))
    assert found.sentence == "exports has no worker since 11:38: 420 messages wait."
    assert bold(found) == ["exports", "no worker"]
    assert (found.kind, found.severity, found.since) == ("no_worker", "bad", NOON - 22 * MINUTE)
    assert found.second == "The last one was host, which has not been heard since then."


def test_a_queue_that_nobody_ever_read_has_no_worker_without_a_time() -> None:
    found = verdict(facts(stats(backlog=1), (Waiter("acme", in_streams=1),)))
    assert found.sentence == "jobs has no worker: 1 message waits."
    assert found.since is None


def test_no_worker_is_not_said_where_somebody_reads_who_does_not_tell() -> None:
    assert verdict(gone(NOON - HOUR, is_read=True)).kind != "no_worker"


def test_no_worker_is_not_said_of_what_nobody_could_read() -> None:
    """All waits for a limit: whoever scales by what is runnable has started nobody."""
    limited = stats(queue="exports", backlog=420, limited=420)
    assert verdict(gone(NOON - HOUR, limited)).kind == "idle"


def test_a_worker_that_ended_in_order_has_a_moment_to_come_back() -> None:
    for age, ago, kind in ((2.0, HOUR, "idle"), (HOUR, 2.0, "idle"), (11.0, 11.0, "no_worker")):
        ended = (worker(state="ended", heard=NOON - ago),)
        given = facts(stats(backlog=3, oldest_age=age), (Waiter("acme", in_streams=3),), workers=ended)
        assert verdict(given).kind == kind
    assert verdict(given).second == "The last one was host, which ended in order."


def full(share: float = 0.981, refused: int = 1204, **more: Any) -> Facts:
    """Return a queue that was written to all the time until its server was full, 10 minutes ago."""
    known: dict[str, Any] = {
        "last_written": NOON - 10 * MINUTE,
        "workers": (worker(),),
        "minutes": minutes(20, written=600),
    } | more
    return facts(stats(backlog=9), memory=ServerMemory(round(share * 4 * GB), 4 * GB, refused), **known)


def test_redis_is_full() -> None:
    found = verdict(full())
    assert found.sentence == (
        "Redis is full (98 % of 4 GB): writes fail since 11:50, 1,204 so far; reads and acks go on."
    )
    assert bold(found) == ["Redis is full"]
    assert (found.kind, found.severity, found.since) == ("redis_full", "bad", NOON - 10 * MINUTE)


def test_nothing_false_is_said_of_since_when_redis_is_full() -> None:
    """A queue that is written to now and then does not know."""
    seldom = minutes(20, written=[1, 0, 0, 0, 0] * 4, last=NOON - 11 * MINUTE)
    for given in (full(minutes=seldom), full(minutes=(), last_written=NOON - HOUR), full(last_written=None)):
        assert verdict(given).sentence == (
            "Redis is full (98 % of 4 GB): writes fail, 1,204 so far; reads and acks go on."
        )
    young = full(minutes=(), last_written=NOON - 9 * MINUTE)
    assert "since 11:51" in verdict(young).sentence


@pytest.mark.parametrize(("share", "refused", "written"), [(0.981, 0, 60.0), (0.983, 7, 1.0)])
def test_redis_is_nearly_full(share: float, refused: int, written: float) -> None:
    found = verdict(full(share, refused, last_written=NOON - written))
    assert found.sentence.startswith("Redis is nearly full (98 % of 4 GB): soon writes fail;")
    assert found.kind == "redis_full"


def test_a_server_that_tells_nothing_is_not_called_full() -> None:
    for memory in (None, ServerMemory(4 * GB, 0, 99), ServerMemory(3 * GB, 4 * GB, 99)):
        given = facts(stats(), memory=memory, workers=(worker(done=0),))
        assert verdict(given).kind == "quiet"


def paused(until: float = math.inf, since: float | None = NOON - 2 * DAY + 4 * HOUR, **more: Any) -> Facts:
    """Return a queue that somebody paused, which a worker reads."""
    known: dict[str, Any] = {"backlog": 2663, "paused_by": "jonas", "paused_note": "until the VAT fix is out"} | more
    given = stats(paused_until=until, paused_since=since, runnable=0, **known)
    return facts(given, (Waiter("acme", held_back=given.backlog),), workers=(worker(done=0),))


def test_paused_and_forgotten() -> None:
    found = verdict(paused())
    assert found.sentence == "2,663 wait because jonas paused it Thursday 16:00, without an end."
    assert bold(found) == ["2,663 wait", "jonas paused it"]
    assert (found.kind, found.severity) == ("paused", "pause")
    assert found.second == "“until the VAT fix is out”, says the pause."


def test_a_pause_of_today_that_ends() -> None:
    found = verdict(paused(NOON + 5 * HOUR, NOON - HOUR, paused_note=""))
    assert found.sentence == "2,663 wait because jonas paused it at 11:00, until 17:00."
    assert found.second == ""


def test_a_pause_of_which_nobody_knows_who_made_it() -> None:
    assert verdict(paused(paused_by="", since=None)).sentence == "2,663 wait because it is paused, without an end."
    assert verdict(paused(backlog=0)).sentence == "Nothing waits, and jonas paused it Thursday 16:00, without an end."
    assert verdict(paused(backlog=1)).sentence.startswith("1 waits because jonas paused it")


def test_a_paused_queue_needs_no_worker() -> None:
    """Whoever scales by what is runnable has started nobody."""
    given = stats(backlog=5, runnable=0, paused_until=math.inf)
    assert verdict(facts(given, (Waiter("acme", held_back=5),))).kind == "paused"


def failing(*groups: Failure, done: int = 5000, **more: Any) -> Facts:
    """Return a queue of which tries fail."""
    tasks = (TaskMinute("mail.send_receipt", done // 10, 0, 1.0), TaskMinute("mail.send_digest", 10, 0, 1.0))
    known: dict[str, Any] = {"workers": (worker(),), "minutes": minutes(10, written=600, done=600, tasks=tasks)} | more
    return facts(stats(backlog=3), failures=groups, **known)


def test_one_kind_fails() -> None:
    found = verdict(failing(group(first=NOON - 47 * MINUTE, minutes=(0, 0, *[9] * 10))))
    assert found.sentence == (
        "mail.send_receipt fails since 11:13: TimeoutError, 2,104 in 10 min, of 9 tenants. "
        "The other kinds of task are well."
    )
    assert bold(found) == ["mail.send_receipt fails", "TimeoutError"]
    assert (found.kind, found.severity, found.since) == ("failing", "bad", NOON - 47 * MINUTE)


def test_others_are_well_only_if_there_are_others() -> None:
    alone = minutes(10, written=600, done=600, tasks=(TaskMinute("mail.send_receipt", 500, 0, 1.0),))
    only = worker(done=0)
    assert verdict(failing(group(), minutes=alone, workers=(only,))).sentence.endswith(", of 9 tenants.")
    told = replace(only, tasks=(TaskWork("mail.send_digest", 10, 0, 1.0),))  # before the minute is over
    assert verdict(failing(group(), minutes=alone, workers=(told,))).sentence.endswith("other kinds of task are well.")


def test_two_kinds_fail() -> None:
    found = verdict(failing(group(), group("mail.send_digest", "KeyError", recent=400)))
    assert found.sentence.endswith("of 9 tenants. 1 other kind of task fails, too.")
    third = group("mail.third", "KeyError", recent=300)
    again = group("mail.third", "ValueError", recent=300)
    found = verdict(failing(group(), group("mail.send_digest", "KeyError", recent=400), third, again))
    assert found.sentence.endswith("2 other kinds of task fail, too.")


def test_tries_that_are_tried_again_and_the_last_ones_are_one_kind() -> None:
    """They have one error: none of the two numbers by itself is how many tries failed."""
    last = group(reason="dead", retried=0, dead=300, recent=300, minutes=(0,) * 11 + (300,), first=NOON - 120)
    other = group(error="KeyError", recent=30)
    found = verdict(failing(last, group(recent=900, minutes=(0,) * 11 + (900,)), other, done=0))
    assert found.sentence.startswith(
        "mail.send_receipt fails since 11:57: TimeoutError, 1,200 in 10 min, of 9 tenants."
    )
    few = group(recent=11), group(reason="dead", recent=10)
    assert verdict(failing(*few, done=0)).kind == "failing"
    (one,) = united(
        [
            last,
            group(recent=900, retried=900, dead=2, tenants=("acme", "globex"), trace="a.py:1 in f", last=NOON - 9),
        ]
    )
    assert (one.retried, one.dead, one.recent, one.first, one.last) == (900, 302, 1_200, NOON - 180, NOON - 1)
    assert (one.tenants, one.trace) == (("acme", "globex"), "a.py:1 in f")


def test_other_ways_to_fail_are_no_kind_with_them() -> None:
    ended = group(reason="lease ended"), group("", "", reason="lease ended"), group("", "", reason="process died")
    assert len(united([group(), *ended])) == 4


@pytest.mark.parametrize(("reason", "told"), [("lease ended", "leases ended"), ("no such task", "no such task")])
def test_what_fails_without_a_class_of_error(reason: str, told: str) -> None:
    found = verdict(failing(group("", "", reason=reason, tenants_lately=64)))
    assert found.sentence == f"Messages fail since 11:57: {told}, 2,104 in 10 min, of 64 tenants or more."


@pytest.mark.parametrize(("recent", "done", "kind"), [
    (20, 0, "flows"), (21, 0, "failing"), (21, 188, "failing"), (21, 200, "flows"), (2104, 100_000, "flows"),
])  # fmt: skip
def test_few_failures_are_none(recent: int, done: int, kind: str) -> None:
    """Of all tries of the task a tenth."""
    assert verdict(failing(group(recent=recent), done=done)).kind == kind


@pytest.mark.parametrize("done", [188, 200, 100_000])
def test_what_fails_is_what_the_verdict_says_on_each_screen(done: int) -> None:
    """The heading of the failures, on the page and of the command line, goes by the same rule."""
    given = failing(group(recent=21, dead=2), done=done)
    fails, told = fails_of(given), joined(lately(united(given.failures), fails_of(given), NOON))[0]
    assert (verdict(given).kind == "failing") == bool(fails) == ("fails since" in told)
    assert told.startswith("mail.send_receipt fails since" if fails else "21 tries failed in 10 min; 2")
    advised = joined(advice(united(given.failures), fails, 0))[0]
    assert advised.startswith("2 are dead of what still fails" if fails else "2 are dead: redrive")


@pytest.mark.parametrize(("done", "kind"), [(100, "failing"), (300, "flows")])
def test_few_failures_are_none_before_the_first_minute_is_over(done: int, kind: str) -> None:
    """Failures count at once, minutes when they are over: workers know what they did since."""
    told = replace(worker(done=done), tasks=(TaskWork("mail.send_receipt", done, 0, 1.0),))
    assert verdict(failing(group(recent=21), minutes=(), workers=(told,))).kind == kind
    nameless = failing(group("", recent=21), minutes=(), workers=(replace(told, tasks=()),))
    assert verdict(nameless).kind == kind


def test_since_when_it_fails_is_when_it_began_without_a_break() -> None:
    """A group that was seen now and then for weeks fails since tries of it fail each five minutes."""
    weeks = NOON - 10 * DAY
    assert verdict(failing(group(first=weeks, minutes=(9, 0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 0)))).since == NOON - 600
    stopped = group(first=NOON - 500, minutes=(0,) * 9 + (400, 0, 0), recent=300)
    assert verdict(failing(stopped, done=0)).since == NOON - 500, "when it began, though it is over"
    assert (
        "fails for more than an hour: TimeoutError" in verdict(failing(group(first=weeks, minutes=(9,) * 12))).sentence
    )


def flood(waits: int = 9800, **more: Any) -> Facts:
    """Return a queue that one shard key floods, of 200 others that wait a little."""
    rows = (Waiter("lumen-labs", held_back=waits), *(Waiter(f"t{n}", in_streams=5) for n in range(38)))
    others = tuple(TenantWork(f"t{n}", 5, 0.8, 0.5) for n in range(20))
    of_lumen = TenantWork("lumen-labs", 1100, 0.8, 300.0)
    known: dict[str, Any] = {
        "workers": (worker(slots=16, busy=16, done=1200, tenants=(of_lumen, *others)),),
        "minutes": minutes(5, written=100, done=1200, runnable=9000, slots=16, busy=16),
    } | more
    return facts(None, rows, **known)


def test_one_tenant_floods() -> None:
    found = verdict(flood())
    assert found.sentence == (
        "lumen-labs holds 98 % of what waits. It drains in 9 min; the other 38 tenants wait 0.5 s."
    )
    assert bold(found) == ["lumen-labs", "drains in 9 min", "0.5 s"]
    assert (found.kind, found.severity) == ("flood", "warn")


def test_a_flood_of_which_nobody_knows_how_fast_it_is_served() -> None:
    found = verdict(flood(workers=(), minutes=(), is_read=True))
    assert found.sentence == "lumen-labs holds 98 % of what waits."
    growing = flood(minutes=minutes(5, written=3000, done=1200, runnable=9000, slots=16, busy=16))
    assert "It grows; the other 38 tenants wait 0.5 s." in verdict(growing).sentence


def test_how_many_others_there_are_is_said_only_where_it_is_known() -> None:
    """Workers name 20 tenants each, and count the others together."""
    tenants = tuple(TenantWork(f"quiet-{number}", 9, 0.8, 0.5) for number in range(20))
    busy = worker(slots=16, busy=16, done=1200, tenants=tenants, others=(0, 0, 7))
    assert verdict(flood(workers=(busy,))).sentence.endswith("It drains in 9 min; the others wait 0.5 s.")
    all_told = worker(slots=16, busy=16, done=1200, tenants=tenants)
    assert verdict(flood(workers=(all_told,))).sentence.endswith("the other 58 tenants wait 0.5 s.")


def test_a_flood_that_its_own_limit_holds_back() -> None:
    rows = (Waiter("acme", held_back=900, rate=2.0, allowance=0), Waiter("other", in_streams=1))
    given = facts(stats(backlog=901, limited=900), rows, workers=(worker(),), minutes=minutes(5, done=600))
    assert verdict(given).sentence.startswith(
        "acme holds 99 % of what waits. It waits for its limit; the other 1 tenant"
    )


def test_little_is_no_flood() -> None:
    assert verdict(flood(500)).kind == "flows"
    assert verdict(flood(501)).kind == "flood"
    half = (Waiter("one", held_back=600), Waiter("other", held_back=600))
    assert verdict(facts(None, half, workers=(worker(),), minutes=minutes(5, done=600))).kind == "flows"


def test_what_is_served_within_seconds_is_no_flood() -> None:
    quick = (worker(slots=16, busy=16, done=60_000, seconds=0.016),)
    assert verdict(flood(900, workers=quick, minutes=minutes(5, done=60_000, slots=16, busy=16))).kind == "flows"


def test_more_comes_than_goes() -> None:
    rows = tuple(Waiter(f"t{n}", held_back=330) for n in range(10))
    past = minutes(5, written=3000, done=600, runnable=3000, busy=8)
    found = verdict(facts(None, rows, workers=(worker(),), minutes=past))
    assert found.sentence == "More comes than goes: 3,300 wait, 50/s in, 10/s out."
    assert (found.kind, found.severity, bold(found)) == ("grows", "warn", ["More comes than goes", "3,300 wait"])


def test_nothing_is_done() -> None:
    rows = (Waiter("acme", held_back=30), Waiter("other", held_back=30))
    given = facts(stats(backlog=60, oldest_age=300.0), rows, workers=(worker(done=0),))
    assert verdict(given).sentence == "60 wait, and nothing was done in the last minute: 8 of 8 slots are busy."


def test_workers_that_have_just_begun_are_not_stuck() -> None:
    """What waits is old, since nobody worked; what they do they have not told of yet."""
    young = replace(worker(done=0), started=NOON - 12)
    given = facts(stats(backlog=60, oldest_age=900.0), (Waiter("acme", held_back=60),), workers=(young,))
    assert verdict(given).sentence == "60 wait, and nobody knows yet how fast they are served."


def test_it_flows() -> None:
    past = minutes(5, written=600, done=600, oldest_age=0.5)
    found = verdict(facts(stats(backlog=3, oldest_age=0.1), workers=(worker(),), minutes=past))
    assert found.sentence == "Flows: 10/s, nobody waits longer than 0.5 s."
    assert (found.kind, found.severity) == ("flows", "good")
    rows = (Waiter("acme", held_back=30, allowance=0, rate=1.0), Waiter("other", in_streams=1))
    found = verdict(facts(stats(backlog=31, limited=30), rows, workers=(worker(),), minutes=past))
    assert found.sentence == "Flows: 10/s, nobody waits longer than 0.5 s, but 30 wait for limits and pauses."


def test_a_long_backlog_of_many_flows_slowly() -> None:
    rows = tuple(Waiter(f"t{n}", held_back=1000) for n in range(20))
    past = minutes(5, written=100, done=600, runnable=20_000, busy=8)
    found = verdict(facts(None, rows, workers=(worker(),), minutes=past))
    assert (found.kind, found.severity) == ("flows", "warn")
    assert found.sentence == "20,000 wait, and drain in 40 min: 10/s are done."


def test_quiet_and_idle() -> None:
    ready = facts(stats(delayed=12), workers=(worker(done=0), worker("w2", done=0)))
    assert verdict(ready).sentence == "Quiet: nothing waits, and 2 workers are ready. 12 come due later."
    assert verdict(facts(stats(), is_read=True)).sentence == "Quiet: nothing waits, and somebody reads."
    assert verdict(facts(stats())).sentence == "Idle: nothing waits, and nobody reads it."


def test_the_first_rule_that_holds_speaks() -> None:
    """All at once; each time the one that spoke is taken away."""
    memory = ServerMemory(4 * GB, 4 * GB, 9)
    rows = (Waiter("acme", held_back=9000), Waiter("other", held_back=10))
    past = minutes(5, written=9000, done=600, runnable=9000, busy=8)
    end = {"paused_until": None}
    everything = facts(None, rows, workers=(worker(state="gone", heard=NOON - 60),), failures=(group(),), memory=memory)
    assert verdict(everything).kind == "redis_full"
    assert (
        verdict(facts(None, rows, workers=(worker(state="gone", heard=NOON - 60),), failures=(group(),))).kind
        == "no_worker"
    )
    held = stats(backlog=9010, runnable=0, paused_until=math.inf)
    assert verdict(facts(held, rows, workers=(worker(),), failures=(group(),), minutes=past)).kind == "paused"
    assert (
        verdict(facts(stats(backlog=9010, **end), rows, workers=(worker(),), failures=(group(),), minutes=())).kind
        == "failing"
    )
    assert verdict(facts(None, rows, workers=(worker(),), minutes=past)).kind == "flood"
    two = (Waiter("acme", held_back=9000), Waiter("other", held_back=9000))
    assert verdict(facts(None, two, workers=(worker(),), minutes=past)).kind == "grows"


HOSTILE = ("a\nb\x1b[31m|\0", "\N{RIGHT-TO-LEFT OVERRIDE}evil", "x" * 10_000, b"\xff\xfe", "**bold**", "")


@pytest.mark.parametrize("name", HOSTILE)
def test_names_that_others_chose_do_no_harm(name: str | bytes) -> None:
    """They are cut, and what would control a terminal is shown."""
    text = name if isinstance(name, str) else name.decode(errors="replace")
    rows = (Waiter(name, held_back=9000), Waiter("other", held_back=3, allowance=0, rate=1.0))
    past = minutes(5, written=60, done=600, runnable=9000, busy=8)
    found = [
        verdict(facts(None, rows, workers=(worker(host=text),), minutes=past)),
        verdict(facts(stats(backlog=9), rows, workers=(worker(host=text, state="gone", heard=NOON - 60),))),
        verdict(paused(paused_by=text, paused_note=text)),
        verdict(failing(group(text, text))),
    ]
    for each in found:
        assert len(each.sentence) < 260
    helps = outlook_of(facts(None, rows, workers=(worker(),), minutes=past)).helps
    assert helps
    for help_ in helps:
        assert help_.what.isprintable()
        assert len(help_.what) < 80
