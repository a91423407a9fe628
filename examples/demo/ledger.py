"""The ledger of the demo: compares what each process recorded with the other processes, the server and the disk."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from examples.demo.files import Source
from shardq import QueueStats


@dataclass
class Job:
    """What the processes recorded about one message."""

    tenant: str = ""
    file: tuple[str, int] | None = None  # the path, and which copy of the job
    takes: list[tuple[str, int, float, float]] = field(default_factory=list)  # worker, delivery count, pick-up, when
    parsed: list[str] = field(default_factory=list)  # by whom; from then on it may have been acked
    acked: list[str] = field(default_factory=list)


class Ledger:
    """All jobs by message id. Events may come in any order between processes."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = defaultdict(Job)
        self.wrote = Counter[str]()  # by tenant
        self.acked = 0

    def enter(self, process: str, event: dict[str, Any]) -> None:
        """Enter one event of one process."""
        if event["event"] == "ready":
            return
        job = self.jobs[event["id"]]
        match event["event"]:
            case "wrote":
                job.tenant, job.file = event["tenant"], (event["path"], event["copy"])
                self.wrote[job.tenant] += 1
            case "took":
                job.takes.append((process, event["count"], event["pickup"], event["at"]))
            case "parsed":
                job.parsed.append(process)
            case "acked":
                job.acked.append(process)
                self.acked += 1

    def taken_of(self, tenant: str) -> list[float]:
        """When jobs of *tenant* were delivered for the first time."""
        jobs = (job for job in self.jobs.values() if job.tenant == tenant)
        return [at for job in jobs for _, count, _, at in job.takes if count == 1]

    def held_by(self, worker: str) -> list[str]:
        """The messages that *worker* took last and has certainly not acked: its leases."""
        return [
            message_id
            for message_id, job in self.jobs.items()
            if job.takes and job.takes[-1][0] == worker and not job.acked and worker not in job.parsed
        ]

    def acked_unrecorded(self, killed: str) -> list[str]:
        """The messages that only *killed* can have acked: it was about to, and died before it could record the ack."""
        return [
            message_id
            for message_id, job in self.jobs.items()
            if not job.acked and killed in job.parsed and job.takes[-1][0] == killed
        ]

    def problems(
        self, due: set[tuple[str, int]], before: list[Source], after: list[Source], killed: str, now: QueueStats
    ) -> list[str]:
        """What is wrong, in sentences; empty if each job that was *due*, a path and a copy, was done exactly once."""
        wrote = Counter(job.file for job in self.jobs.values())
        done = Counter(job.file for job in self.jobs.values() if job.acked)
        done.update(self.jobs[message_id].file for message_id in self.acked_unrecorded(killed))
        twice = [message_id for message_id, job in self.jobs.items() if len(job.acked) > 1]
        left = {name: getattr(now, name) for name in ("backlog", "in_flight", "delayed", "dead", "expired", "vanished")}
        checks = {
            f"{len(due - set(done))} jobs were not done": due <= set(done),
            f"{len(set(done) - due)} jobs were done that nobody enqueued": set(done) <= due,
            f"{len(twice)} jobs were acked twice": not twice,
            "a job was written twice": set(wrote.values()) <= {1},
            f"the server counted {now.acked} acks of {now.written} messages": now.acked == now.written == len(due),
            f"something is left in the queue: {left}": not any(left.values()),
            f"more than one ack is in doubt: {self.acked_unrecorded(killed)}": len(self.acked_unrecorded(killed)) <= 1,
            "the files on disk changed while it ran": [file.path for file in before] == [file.path for file in after],
        }
        return [problem for problem, fine in checks.items() if not fine]
