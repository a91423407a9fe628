"""The worker that is killed while it holds a lease, and what becomes of what it held."""

import time
from collections.abc import Callable

from examples.demo.figures import plural, seconds
from examples.demo.ledger import Ledger
from examples.demo.processes import Process


class Casualty:
    """The worker that is killed. *read_on* enters into the ledger what the processes recorded."""

    def __init__(self, ledger: Ledger, read_on: Callable[[], None]) -> None:
        self._ledger, self._read_on = ledger, read_on
        self._at, self._held = 0.0, list[str]()
        self.worker: Process | None = None

    @property
    def name(self) -> str:
        """The name of the worker; empty if none was killed."""
        return self.worker.name if self.worker else ""

    def choose(self, workers: list[Process]) -> None:
        """Kill the first that holds a lease, if one does. It is paused before, to be sure that it still holds one."""
        for worker in workers:
            if not self._ledger.held_by(worker.name):
                continue
            worker.pause()
            self._read_on()
            self._held = self._ledger.held_by(worker.name)
            if self._held:
                worker.kill()
                self.worker, self._at = worker, time.monotonic()
                return
            worker.resume()

    def __str__(self) -> str:
        """What happened."""
        assert self.worker
        return f"SIGKILL to {self.name} (process {self.worker.pid}), which holds {plural(len(self._held), 'lease')}"

    def problem(self) -> str | None:
        """What is wrong unless others were delivered all that it held."""
        if not self.worker:
            return "no worker could be caught holding a lease: none was killed"
        again = self._again()
        if len(again) < len(self._held) or any(count < 2 for _, count, _, _ in again):
            return "what the killed worker held was not delivered again"
        return None

    def redelivered(self) -> str:
        """What became of what it held."""
        later = max(at for *_, at in self._again()) - self._at
        return f"what {self.name} held went to others {seconds(later)} later, when its lease ended"

    def _again(self) -> list[tuple[str, int, float, float]]:
        last = [self._ledger.jobs[message_id].takes[-1] for message_id in self._held]
        return [take for take in last if take[0] != self.name]
