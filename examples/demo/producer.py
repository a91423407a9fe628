"""The API server of the demo: it learns how fast the workers are here, and then writes the others' jobs beside a flood.

The others' jobs come one by one, at a pace that takes a fixed part of what the workers can do. It follows their speed,
which changes while neighbours on this machine come and go. The flood has always some seconds of work in the queue.
"""

import json
import sys
import time
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from examples.demo.input import Input, Job, work
from examples.demo.plan import FLOOD, Plan, plan
from examples.demo.records import Records, Tail
from examples.demo.speed import Speed
from shardq import Client, Message, Queue, ShardqError

LOOK = 0.05  # seconds between two looks at the queue and the workers
LOW = 200  # jobs for each worker: it does far fewer between two looks, so that it always has something to do
PATIENCE = 30.0  # seconds until the workers' speed is known
BEHIND = 0.1  # seconds: what is due for longer is not made up for, since that would come at once


class ApiServer:
    """Writes all jobs, and counts them."""

    def __init__(self, jobs: Queue, given: Input, records: Records, workers: list[Tail]) -> None:
        self._jobs, self._given, self._records = jobs, given, records
        self.speed, self._low = Speed(workers), LOW * len(workers)
        self._next_look = 0.0
        self._flood = given.flood()
        self._flood_work = sum(map(work, given.flooding)) / len(given.flooding)  # of each job
        self.flood = self.others = 0

    def measure(self) -> Plan:
        """Keep the workers busy with the flood's first jobs until their speed is known."""
        until = time.monotonic() + PATIENCE
        while not self.speed.work:
            if time.monotonic() > until:
                raise ShardqError(f"the workers were not all at work within {PATIENCE:g} s")
            self.look()
            time.sleep(LOOK)
        return plan(self._given, self.speed.work, self.speed.work / self._flood_work)

    def write(self, planned: Plan) -> None:
        """Write the others' jobs, each when it is due, until the time is up."""
        due = time.monotonic()
        until = due + planned.seconds
        for file in self._given.others:
            self._wait(min(due, until))
            if time.monotonic() >= until:
                return
            self._write([(file, 0)])
            self.others += 1
            due = max(due, time.monotonic() - BEHIND) + work(file) / (planned.share * self.speed.work)

    def _wait(self, due: float) -> None:
        while (now := time.monotonic()) < due or now > self._next_look:
            if now > self._next_look:
                self.look()
            else:
                time.sleep(min(LOOK, due - now))

    def look(self) -> None:
        """Look how fast the workers are, and add to the flood what they have done of it."""
        now = self._jobs.stats()
        self.speed.look(time.monotonic(), busy=now.runnable > self._low / 2)
        if not self.speed.ready:
            return
        wanted = max(self._low, round(FLOOD * self.speed.work / self._flood_work))
        if batch := list(islice(self._flood, max(0, wanted - now.backlog))):
            self._write(batch)
            self.flood += len(batch)
        self._next_look = time.monotonic() + LOOK

    def _write(self, batch: list[Job]) -> None:
        ids = self._jobs.write_many([message(job) for job in batch])
        for message_id, (file, copy) in zip(ids, batch, strict=True):
            self._records.note("wrote", id=message_id, tenant=file.tenant, path=file.path, copy=copy)


def message(job: Job) -> Message:
    """The message of a job, which is to parse this file."""
    file, copy = job
    return Message({"path": file.path, "copy": copy, "work": work(file)}, file.tenant, headers={"source": "demo"})


def main(url: str, path: str, limit: int, workers: list[str]) -> None:
    """Write all jobs; print the plan, and at the end how many were written, each as one line of JSON."""
    with Client.from_url(url) as client:
        server = ApiServer(
            client.queue("jobs"), Input(limit), Records(path), [Tail(Path(worker)) for worker in workers]
        )
        planned = server.measure()
        print(json.dumps(asdict(planned)), flush=True)
        server.write(planned)
    print(json.dumps({"flood": server.flood, "others": server.others}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
