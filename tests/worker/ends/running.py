"""One run: a worker, some ends of jobs, ordinary jobs after them; then what became of each is looked at."""

from __future__ import annotations

import decimal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import redis

from shardq import AsyncWorker, Client, Queue, Worker
from shardq.backoff import Constant
from tests.worker.ends import django_jobs
from tests.worker.ends.catalogue import (
    BATCHES,
    DJANGO,
    ENDS,
    IN_LOOP,
    IN_WORKER,
    LEASE,
    LIMIT,
    SETTINGS,
    Event,
    Fate,
    Form,
    Place,
    ends_of,
)
from tests.worker.ends.jobs import jobs_of, on_dead
from tests.worker.forward import Forward, end_leases_earlier
from tests.worker.running import run_worker

PATIENCE: Final = 4.0
"""Seconds without any change after which a run is given up; those in which the machine stands still do not count."""
PATIENCE_WITH_CHILDREN: Final = 20.0
"""The same where processes start."""
LOOK: Final = 0.01
"""Seconds between two looks."""
AT_ONCE: Final = 4
"""The slots of a worker, but for those that jobs keep until they are released."""
WORKER: Final = "worker"
"""What stands in place of an end's name in what is wrong of the worker."""


class Kind(NamedTuple):
    """What runs together, in one worker."""

    form: Form
    place: Place
    event: Event = ""

    @property
    def names(self) -> list[str]:
        """The ends of this kind."""
        return [*ends_of(*self)]

    @property
    def groups(self) -> list[list[str]]:
        """The ends that run together: members of batches with slots for all, and what blocks a loop alone."""
        if self.event == "ask" and (self.form in IN_LOOP or self.form in BATCHES):
            return [[name] for name in self.names]
        groups = [[name for name in self.names if ("." in name) is is_member] for is_member in (False, True)]
        return [names for names in groups if names]

    def wanted(self, name: str) -> Fate:
        """What becomes of an end's message."""
        if self.place == "on_error":
            return Fate("again", "ValueError: told")
        if self.place == "on_dead":
            return Fate("dead", "poison")
        fate = ENDS[name].fate
        return Fate("again") if self.form in DJANGO and fate.state == "again" else fate

    def tells(self) -> bool:
        """Whether a job can be told that it is not wanted any more."""
        return self.event not in ("", "ask") and self.form not in ("child", "django")


class Working:
    """A worker of a kind, at work in a thread of its own; `failure` is what `run` raised."""

    def __init__(self, url: str, kind: Kind, slots: int) -> None:
        self._url, self._kind = url, kind
        self.clock = Forward()
        self._settings: dict[str, Any] = {
            "concurrency": slots, "backoff": Constant(0), "signals": False, "grace": 0 if kind.event == "stop" else 2.0,
            "time_limit": LIMIT if kind.event == "limit" else None,
            "on_dead": on_dead if kind.place == "on_dead" else None,
        }  # fmt: skip
        if kind.form == "child":
            self._settings["run_in"] = "processes"
        self.worker: Worker | AsyncWorker | None = None
        self.failure: BaseException | None = None
        self.has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask it to end, and wait for that, but not for ever."""
        if self.worker:
            self.worker.stop()
        self.has_ended.wait(PATIENCE)

    def _run(self) -> None:
        decimal.getcontext()  # now `run` has one, which a mere copy of its context would share
        try:
            run_worker(
                "sync" if self._kind.form in IN_WORKER else "async", self._url, {"default": 1},
                jobs_of(self._kind.form, self._kind.place), client={"clock": self.clock}, ready=self._is_ready,
                over=self.has_ended.set,  # the loop ends later, after tasks that ignore that they are cancelled
                **self._settings,
            )  # fmt: skip
        except BaseException as error:  # noqa: BLE001 (looked at by the test)
            self.failure = error
        finally:
            self.has_ended.set()

    def _is_ready(self, worker: Worker | AsyncWorker, _: object) -> None:
        self.worker = worker


def payload_of(name: str, kind: Kind) -> Any:
    """What is written for an end, or for an ordinary job."""
    if kind.place in ("handler", "on_dead"):
        return name
    if name.startswith("ordinary"):
        return ["ordinary", {"name": name}]
    if kind.place == "context":
        return ["sets", {"names" if kind.form in BATCHES else "name": name}]
    task = name.partition(".")[0] + ".bad" if "." in name else name
    return [task, {"names" if kind.form in BATCHES else "name": name}]


def written(jobs: Queue, names: Sequence[str], kind: Kind) -> dict[str, str]:
    """Write a message for each of *names*. Return their ids."""
    if kind.form in DJANGO:
        return {name: django_jobs.enqueued(kind.form, name) for name in names}
    ids = jobs.write_many([(payload_of(name, kind), name) for name in names])
    return dict(zip(names, ids, strict=True))


class Run:
    """A run of the ends *names* of a kind; `wrong` is what is wrong, by the ends' names or WORKER."""

    def __init__(self, url: str, folder: Path, kind: Kind, names: Sequence[str]) -> None:
        self._url, self._folder, self._kind, self._names = url, folder, kind, names
        takes_all = kind.event != "" or "." in names[0]
        self._slots = (
            max(AT_ONCE, len(names)) if takes_all and kind.form == "child" else AT_ONCE + takes_all * len(names)
        )
        self.wrong: dict[str, str] = {}
        with Client.from_url(url) as client:
            self._jobs = client.queue("default", **SETTINGS)
            self._ids = written(self._jobs, names, kind)
            with Working(url, kind, self._slots) as working:
                self._working = working
                trouble = self._trouble()
                self.wrong |= self.complaints()
                (folder / "release").touch()
            if trouble:
                self.wrong[WORKER] = f"{trouble}; run raised {working.failure!r:.200}"

    def has_begun(self, name: str) -> bool:
        return (self._folder / f"begun-{name}").exists()

    def _trouble(self) -> str:
        """Run all. Return what the worker did not do."""
        if self._kind.event:
            if not self._waits(lambda: all(map(self.has_begun, self._names))):
                return "not all jobs begin at once"
            if self._kind.event == "ask" and (trouble := self._trouble_meanwhile()):
                return trouble
            self._happens()
            if self._kind.tells() and not self._waits(self._are_told, beyond_end=True):
                return "not all jobs are told that they are not wanted any more"
            if self._kind.event in ("cancel", "lose"):
                self._end_leases()
        if not self._waits(self._is_settled, beyond_end=self._kind.event == "stop"):
            return "not all jobs are settled"
        (self._folder / "release").touch()
        if self._kind.event != "stop":
            if not self._does_ordinary_jobs(self._slots):
                return "the ordinary jobs after them are not all done"
            self._working.stop()
        return self._end()

    def _happens(self) -> None:
        """Let time pass, cancel the jobs, end their leases or stop the worker."""
        match self._kind.event:
            case "limit":
                self._working.clock.by += LIMIT + 1
            case "cancel":
                assert [self._jobs.cancel(each) for each in self._ids.values()] == ["in flight"] * len(self._ids)
                self._working.clock.by += 0.45 * LEASE  # so that all leases are extended, by which the worker learns it
            case "lose":
                self._working.clock.by += LEASE + 1
            case "stop":
                assert self._working.worker
                self._working.worker.stop()

    def _end_leases(self) -> None:
        """End all leases in Redis, and let them be seen: a read that waits is woken by a message."""
        written(self._jobs, ["nothing"], self._kind)  # what a read brings that began before the clock went on is lost
        self._waits(lambda: not self._jobs.stats().backlog)
        with redis.Redis.from_url(self._url) as server:
            end_leases_earlier(server.execute_command, self._jobs, 2 * LEASE)
        written(self._jobs, ["nothing"], self._kind)

    def _are_told(self) -> bool:
        """Whether each job has seen that it is not wanted any more, which threads look for now and then."""
        return all(map(self._is_told, self._names))

    def _is_told(self, name: str) -> bool:
        return (self._folder / f"told-{name}").exists()

    def _is_settled(self) -> bool:
        """Whether the worker has done all that there is to do, right or wrong."""
        if self._kind.event == "stop":
            # A read that `stop` has cut may get what was just given back; the client gives that back, too.
            return self._working.has_ended.is_set() and not self.complaints()
        return self._is_quiet() and (not self.complaints() or self._is_quiet())

    def _is_quiet(self) -> bool:
        now, wanted = self._jobs.stats(), [self._kind.wanted(name).state for name in self._names]
        return (now.in_flight, now.backlog, now.delayed) == (0, 0, wanted.count("delayed"))

    def _trouble_meanwhile(self) -> str:
        """Look at the worker while what is asked of errors hangs, and let that end. Return what it did not do."""
        held = len(self._names)
        if not self._waits(lambda: all((self._folder / f"asked-{name}").exists() for name in self._names)):
            return "nothing is asked of the errors"
        with redis.Redis.from_url(self._url) as server:
            end_leases_earlier(server.execute_command, self._jobs, 0.45 * LEASE)
        self._working.clock.by += 0.45 * LEASE
        if not self._waits(self._are_leases_long):
            return "the leases are not extended"
        # What is asked of an async function's error is asked in the event loop, which async jobs need. But on_error is
        # told in a thread.
        loop_hangs = self._kind.form in IN_LOOP and self._kind.place != "on_error"
        if not loop_hangs and not self._does_ordinary_jobs(self._slots - held, held):
            return "the ordinary jobs beside them are not all done"
        (self._folder / "release").touch()
        return ""

    def _are_leases_long(self) -> bool:
        found = [self._jobs.status(each) for each in self._ids.values()]
        return all(each.until is not None and each.until - each.time > 0.9 * LEASE for each in found)

    def _does_ordinary_jobs(self, slots: int, held: int = 0) -> bool:
        """Let so many jobs run at once, and others; *held* jobs have the other slots."""
        for left in ("met", "ordinary-*"):
            for each in self._folder.glob(left):
                each.unlink()
        (self._folder / "slots").write_text(str(slots))
        names, before = [f"ordinary-{number}" for number in range(20 + slots)], self._jobs.stats().acked
        written(self._jobs, names, self._kind)

        def are_done() -> bool:
            now = self._jobs.stats()
            return now.acked >= before + len(names) and now.in_flight == held

        return self._waits(are_done)

    def _end(self) -> str:
        worker = self._working.worker
        assert worker
        if not self._working.has_ended.is_set() or self._working.failure:
            return "it does not end well"
        if self._kind.event != "stop":  # a busy worker may give back what it has read ahead
            return ""
        given = worker.tally["give back"]
        return f"it has given back {given}" if given != len(self._names) else ""

    def complaints(self) -> dict[str, str]:
        """What is wrong of the ends by now."""
        found = {name: self._complaint(name) for name in self._names}
        return {name: complaint for name, complaint in found.items() if complaint}

    def _complaint(self, name: str) -> str:
        if self._kind.tells() and not self._is_told(name):
            return "it was not told that it is not wanted any more"
        wanted, found = self._kind.wanted(name), self._fate(name)
        is_right = wanted.state == found.state and found.text.startswith(wanted.text)
        return "" if is_right else f"{found.state} {found.text[:80]!r}, not {wanted.state} {wanted.text!r}"

    def _fate(self, name: str) -> Fate:
        """What became of the message of an end."""
        status, again = self._jobs.status(self._ids[name]), self._folder / f"again-{name}"
        state: Any = status.state
        if again.exists():
            return Fate("again" if state == "done" else state, again.read_text())
        if state == "waiting":
            return Fate(state, f"{status.deliveries} deliveries")
        return Fate(state, (status.reason if state == "dead" else status.last_error) or "")

    def _waits(self, condition: Callable[[], bool], *, beyond_end: bool = False) -> bool:
        """Wait for *condition*, as long as something changes; *beyond_end*, also when the worker has ended."""
        seen, looks = self._seen(), 0
        while not condition():
            if self._working.has_ended.is_set() and not beyond_end:
                return condition()
            looks = looks + 1 if (now := self._seen()) == seen else 0
            seen = now
            if looks * LOOK > (PATIENCE_WITH_CHILDREN if self._kind.form == "child" else PATIENCE):
                return False
            time.sleep(LOOK)
        return True

    def _seen(self) -> object:
        now = self._jobs.stats()
        return now.acked, now.dead, now.delayed, now.in_flight, len(list(self._folder.iterdir()))


def run(kind: Kind, names: Sequence[str], begin: Callable[[Kind, Sequence[str]], Run]) -> Mapping[str, str]:
    """Run these ends by *begin*. Return what is wrong of each.

    If a worker stands still, those that it has begun are to blame, and the others are run again without them. If it is
    none of these, halves are run until it is known which end takes the slots.
    """
    found = begin(kind, names) if names else None
    if found is None or WORKER not in found.wrong:
        return found.wrong if found else {}
    told = found.wrong.pop(WORKER)
    stems = [*dict.fromkeys(map(stem, names))]  # a batch stays together
    guilty = {stem(name) for name in found.wrong if found.has_begun(name)}
    if not guilty and len(stems) > 1:
        guilty = {*stems[: len(stems) // 2]}
        wrong = run(kind, [name for name in names if stem(name) in guilty], begin)
    else:
        guilty = guilty or {*stems}
        wrong = {name: f"{found.wrong.get(name, '')}; {told}" for name in names if stem(name) in guilty}
    return {**wrong, **run(kind, [name for name in names if stem(name) not in guilty], begin)}


def stem(name: str) -> str:
    """The batch of which an end is a member, or the end itself."""
    return name.partition(".")[0]


def kinds(forms: Iterable[Form], places: Iterable[Place], events: Iterable[Event]) -> list[Kind]:
    """The kinds that have ends."""
    found = [Kind(form, place, event) for form in forms for place in places for event in events]
    return [kind for kind in found if kind.names]
