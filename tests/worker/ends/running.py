"""One run: a worker, some ends of jobs, twenty ordinary jobs after them; then what became of each is looked at."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from shardq import AsyncClient, AsyncWorker, Client, Queue, Worker
from shardq.backoff import Constant
from tests.worker.ends.catalogue import ENDS, Fate, Form, Place
from tests.worker.ends.jobs import AT_ONCE, jobs_of, on_dead

PATIENCE: Final = 8.0
"""Seconds without any change after which a run is given up."""
JOIN: Final = 40.0
SETTINGS: Final[dict[str, Any]] = {"streams": 8, "visibility_timeout": 600, "max_deliveries": 5, "result_ttl": 600}


class Working:
    """A worker of a form, at work in a thread of its own; `failure` is what `run` raised."""

    def __init__(self, url: str, form: Form, place: Place) -> None:
        self._url, self._form, self._place = url, form, place
        self._settings: dict[str, Any] = {"concurrency": AT_ONCE, "backoff": Constant(0), "grace": 20.0}
        if place == "on_dead":
            self._settings["on_dead"] = on_dead
        self.worker: Worker | AsyncWorker | None = None
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.worker:
            self.worker.stop()
        self.thread.join(JOIN)

    def _run(self) -> None:
        try:
            if self._form in ("plain", "batch", "child"):
                self._run_threads()
            else:
                asyncio.run(self._run_loop())
        except BaseException as error:  # noqa: BLE001 (looked at by the test)
            self.failure = error

    def _run_threads(self) -> None:
        with Client.from_url(self._url) as client:
            self.worker = Worker(
                client.queue("jobs", create=True), jobs_of(self._form, self._place),
                run_in="processes" if self._form == "child" else "threads", **self._settings,
            )  # fmt: skip
            self.worker.run()

    async def _run_loop(self) -> None:
        async with AsyncClient.from_url(self._url) as client:
            jobs = client.queue("jobs", create=True)
            self.worker = AsyncWorker(jobs, jobs_of(self._form, self._place), **self._settings)
            await self.worker.run()


def payload_of(name: str, place: Place, form: Form) -> Any:
    if place in ("handler", "on_dead"):
        return name
    if name.startswith("ordinary"):
        return ["ordinary", {"name": name}]
    task = name.partition(".")[0] + ".bad" if "." in name else name
    return [task, {"names" if form in ("batch", "async-batch") else "name": name}]


def waits(condition: Callable[[], bool], look: Callable[[], object], working: Working) -> bool:
    """Wait for *condition*, as long as something that *look* sees changes and the worker is there."""
    seen, since = look(), time.monotonic()
    while not condition():
        if (now := look()) != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() - since > PATIENCE or not working.thread.is_alive():
            return False
        time.sleep(0.01)
    return True


def fate_of(jobs: Queue, folder: Path, name: str, message_id: str) -> Fate:
    """What became of the message of an end."""
    status, again = jobs.status(message_id), folder / f"again-{name}"
    if again.exists():
        return Fate("again" if status.state == "done" else status.state, again.read_text())  # type: ignore[arg-type]
    return Fate(status.state, status.reason if status.state == "dead" else status.last_error)  # type: ignore[arg-type]


def complaint_of(wanted: Fate, found: Fate) -> str:
    is_right = wanted.state == found.state and (found.text or "").startswith(wanted.text)
    return "" if is_right else f"{found.state} {found.text[:80]!r}, not {wanted.state} {wanted.text!r}"


def wanted_of(name: str, place: Place) -> Fate:
    if place == "on_error":
        return Fate("again", "ValueError: told")
    return Fate("dead", "poison") if place == "on_dead" else ENDS[name].fate


def run(url: str, folder: Path, form: Form, place: Place, names: Iterable[str]) -> Mapping[str, str]:
    """Run these ends. Return what is wrong: of each end by its name, and of the worker by "worker"."""
    names, wrong = list(names), dict[str, str]()
    with Client.from_url(url) as client:
        jobs = client.queue("jobs", **SETTINGS)
        ids = {name: jobs.write(payload_of(name, place, form), shard_key=name) for name in names}
        with Working(url, form, place) as working:

            def look() -> object:
                now = jobs.stats()
                return now.acked, now.dead, now.delayed, now.in_flight, len(list(folder.iterdir()))

            def complaints() -> dict[str, str]:
                found = {
                    name: complaint_of(wanted_of(name, place), fate_of(jobs, folder, name, ids[name])) for name in names
                }
                return {name: complaint for name, complaint in found.items() if complaint}

            def is_settled() -> bool:
                return not jobs.stats().in_flight and not complaints()

            if not waits(is_settled, look, working):
                wrong["worker"] = f"not all are settled; it ended with {working.failure!r:.200}"
            else:
                before = jobs.stats().acked
                jobs.write_many([(payload_of(f"ordinary-{n}", place, form), f"tenant-{n}") for n in range(20)])
                if not waits(lambda: jobs.stats().acked == before + 20 and not jobs.stats().in_flight, look, working):
                    wrong["worker"] = f"the ordinary jobs were not all done; it ended with {working.failure!r:.200}"
            wrong |= complaints()
            if "worker" not in wrong:
                working.stop()
                assert working.worker
                if working.thread.is_alive() or working.failure or working.worker.tally["give back"]:
                    wrong["worker"] = f"it did not end well: {working.failure!r:.200}"
    return wrong
