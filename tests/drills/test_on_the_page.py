"""The drills on the page, live in a real browser: the headings of the Overview and of the queue say what broke."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count

import pytest

from shardq import Message
from shardq.protocol.beats import GONE_AFTER
from tests.dashboard.browser import Look, Open, chromium, open_look
from tests.drills.conftest import Watch, fill_up
from tests.drills.handlers import send_digest, send_receipt
from tests.waiting import eventually

__all__ = ["chromium", "open_look"]  # fixtures
pytestmark = [pytest.mark.once, pytest.mark.runs_in("test-all"), pytest.mark.timeout(300)]

PATIENCE = 90.0
"""Seconds within which a busy browser shows it."""
WITHIN = 35.0
"""Seconds between a fault and the first scene that says it."""
CLOCK = r"\d\d:\d\d"
SCREENS = ("#/", "#/q/{queue}")
Again = Callable[[], object]
_NOTE = """
window.told = [];
window.EventSource = class extends EventSource {
  constructor(url) {
    super(url);
    this.addEventListener("scene", (e) => {
      const { now, said } = JSON.parse(e.data);
      told.push([now, said.line.map(([text]) => text).join("")]);
    });
  }
};
"""
"""Notes each scene that the page is told: of when its numbers are by the server's clock, and its sentence."""


class Eyes:
    """Somebody who looks at the Overview and at one queue, and loads neither again."""

    def __init__(self, looks: list[Look], queue: str) -> None:
        self._looks, self._queue = looks, queue

    def headings(self) -> list[str]:
        """The headings, as they are now."""
        return [look.page.inner_text("h1") for look in self._looks]

    def see(self, pattern: str, meanwhile: Again = lambda: None) -> None:
        """Wait until both headings are as the *pattern* says."""
        last: list[str] = []

        def is_said() -> bool:
            meanwhile()
            last[:] = self.headings()
            return all(self._is(pattern, each) for each in last)

        try:
            eventually(is_said, PATIENCE, every=0.1)
        except AssertionError:
            raise AssertionError(f"the headings are {last}, not as {pattern}") from None

    def _is(self, pattern: str, sentence: str) -> bool:
        """Whether it is as the *pattern* says; the Overview may say first of which queue it speaks."""
        return re.fullmatch(rf"({self._queue}: )?{pattern}", sentence) is not None

    def see_soon(self, fault: float, pattern: str, meanwhile: Again = lambda: None) -> None:
        """Wait until both headings are as the *pattern* says. They were told so within 35 s after the *fault*.

        That is by the server's clock, which stands with the numbers: however late a busy browser draws them.
        """
        self.see(pattern, meanwhile)
        for told in self.told():
            assert next(at for at, sentence in told if at > fault and self._is(pattern, sentence)) - fault <= WITHIN

    def told(self) -> list[list[tuple[float, str]]]:
        """Each scene that a screen was told: of when its numbers are by the server's clock, and its sentence."""
        return [look.page.evaluate("told") for look in self._looks]

    def check(self) -> None:
        """Nothing was loaded again, nothing was complained of."""
        for look in self._looks:
            assert look.page.evaluate("window.isFirst"), "the page was loaded again"
            look.check()


@pytest.fixture
def look_at(open_look: Open) -> Callable[[Watch, str], Eyes]:
    """Starts the page as people do, and opens both screens."""

    def start(watch: Watch, queue: str) -> Eyes:
        address = watch.page()
        looks = []
        for screen in SCREENS:
            look = open_look(address)
            look.page.add_init_script(_NOTE)
            look.go(screen.format(queue=queue)).evaluate("window.isFirst = true")
            looks.append(look)
        return Eyes(looks, queue)

    return start


LookAt = Callable[[Watch, str], Eyes]


def test_all_workers_are_dead(watch: Watch, look_at: LookAt) -> None:
    exports = watch.client.queue("exports", create=True)
    exports.declare()
    for _ in range(2):
        watch.work("export", "-q", "exports", "-c", "4")
    watch.heard(2)
    eyes = look_at(watch, "exports")
    eyes.see(r"(Nothing waits|Quiet: nothing waits).*")
    watch.kill_all_workers()
    died = watch.now()
    exports.write_many([Message(number, f"t{number % 7}") for number in range(420)])
    sentence = rf"exports has no worker since {CLOCK}: 420 messages wait\."
    eyes.see(sentence)
    # However far apart a busy machine makes its scenes: the first one of half a minute later says it.
    for told in eyes.told():
        assert all(re.search(sentence, each) for at, each in told if at > died + GONE_AFTER), (died, told)
    watch.work("export", "-q", "exports", "-c", "64")
    eyes.see(r"(?!.*no worker).*")
    eyes.check()


def test_one_tenant_floods(watch: Watch, look_at: LookAt) -> None:
    reports = watch.client.queue("reports", create=True)
    reports.declare()
    watch.work("export", "-q", "reports", "-c", "2")
    watch.heard(1)
    eyes = look_at(watch, "reports")
    flooded, numbers = watch.now(), count()
    reports.write_many([Message(number, "lumen-labs") for number in range(6_000)])

    def others_write() -> None:
        reports.write_many([Message(next(numbers), f"tenant-{each}") for each in range(8)])

    eyes.see_soon(
        flooded,
        r"lumen-labs holds \d\d % of what waits\. It drains in [\d.]+ (s|min); the other 8 tenants wait "
        r"[\d.]+ (ms|s)\.",
        others_write,
    )
    watch.shardq("purge", "reports", "-t", "lumen-labs", "--yes")
    eyes.see(r"(?!.*lumen-labs).*")
    eyes.check()


def test_one_kind_of_task_fails(watch: Watch, look_at: LookAt) -> None:
    queue = watch.client.queue("mails", create=True)
    queue.declare()
    watch.work("mails", "-c", "8")
    watch.heard(1)
    eyes = look_at(watch, "mails")
    calls, failed = (send_receipt, send_digest), watch.now()
    queue.write_many([Message(task.call(number), f"t{number % 9}") for number in range(90) for task in calls])
    eyes.see_soon(
        failed,
        rf"mail\.send_receipt fails since {CLOCK}: TimeoutError, [\d,]+ in 10 min, of 9 tenants\. "
        r"The other kinds of task are well\.",
    )
    eyes.check()


def test_redis_is_full(small: Watch, look_at: LookAt) -> None:
    reports = small.client.queue("reports", create=True)
    reports.declare()
    eyes = look_at(small, "reports")
    fill_up(reports)
    full = small.now()
    eyes.see_soon(
        full, rf"Redis is full \(\d\d\d? % of 12 MB\): writes fail since {CLOCK}, [\d,]+ so far; reads and acks go on\."
    )
    small.work("export", "-q", "reports", "-c", "16")
    eyes.see(r"(?!.*full).*")
    eyes.check()


def test_a_pause_was_forgotten(watch: Watch, look_at: LookAt) -> None:
    invoices = watch.client.queue("invoices", create=True)
    invoices.declare()
    watch.work("export", "-q", "invoices")
    watch.heard(1)
    eyes = look_at(watch, "invoices")
    paused = watch.now()
    watch.shardq("pause", "invoices", "--by", "jonas", "--note", "ticket 812", "--yes")
    for many in (1_000, 1_000, 663):
        invoices.write_many([Message(number, f"t{number % 30}") for number in range(many)])
    eyes.see_soon(paused, rf"2,663 wait because jonas paused it at {CLOCK}, without an end\.")
    watch.shardq("resume", "invoices")
    eyes.see(r"(?!.*paused).*")
    eyes.check()
