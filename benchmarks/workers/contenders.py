"""The contenders: the command of one worker process in its best usual setting, and what it promises.

`left` counts what is enqueued and not settled, from the keys that each library keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shardq import Client

JOBS = "benchmarks.workers"
HIREDIS = "hiredis==3.5.0"
REDIS = "redis==8.1.0"
UVLOOP = "uvloop==0.23.0"


@dataclass(frozen=True, slots=True)
class Contender:
    """One library in one setting. `command` starts in the folder of the environment's programs.

    One for `node` has packages of npm, and `module` is a script beside this file.
    """

    name: str
    module: str
    command: tuple[str, ...]
    left: Callable[[Any, str], int]
    packages: tuple[str, ...]
    why: str
    enqueues: str
    acked: str
    killed: str
    variables: dict[str, str] = field(default_factory=dict)
    forks: bool = False
    node: bool = False

    @property
    def enqueuer(self) -> tuple[str, ...]:
        """The command of the process that enqueues."""
        if self.node:
            return ("node", f"benchmarks/workers/{self.module}.js", "enqueue")
        return ("python", "-m", f"{JOBS}.enqueue", self.module)

    @property
    def ours(self) -> bool:
        """Whether it is shardq, which runs in this environment."""
        return not self.packages


def _huey(server: Any, url: str) -> int:
    return int(server.llen("huey.redis.jobs"))


def _dramatiq(server: Any, url: str) -> int:
    return int(server.hlen("dramatiq:jobs.msgs"))


def _arq(server: Any, url: str) -> int:
    return int(server.zcard("arq:queue"))


def _taskiq(server: Any, url: str) -> int:
    groups = server.xinfo_groups("taskiq") if server.exists("taskiq") else []
    return sum(int(group["pending"]) + int(group["lag"]) for group in groups)


def _rq(server: Any, url: str) -> int:
    return int(server.llen("rq:queue:jobs")) + int(server.zcard("rq:wip:jobs"))


def _bullmq(server: Any, url: str) -> int:
    return int(server.llen("bull:jobs:wait")) + int(server.llen("bull:jobs:active"))


def _celery(server: Any, url: str) -> int:
    return int(server.llen("celery")) + int(server.hlen("unacked"))


def _shardq(server: Any, url: str) -> int:
    client = _clients.get(url) or _clients.setdefault(url, Client.from_url(url))
    found = client.queue("jobs", create=True).stats()
    return found.backlog + found.in_flight


_clients: dict[str, Client] = {}


def forget(url: str) -> None:
    """Close what `left` keeps open."""
    if client := _clients.pop(url, None):
        client.close()


def _our(name: str, how: str, why: str, enqueues: str, variables: dict[str, str]) -> Contender:
    return Contender(
        name, "shardq_jobs", ("python", "-m", f"{JOBS}.shardq_jobs", how), _shardq, (), why, enqueues,
        "after the job", "again when its lease ends (default 30 s)", variables,
    )  # fmt: skip


SINGLE, GATHER = {"BENCH_WRITE": "single"}, {"BENCH_WRITE": "gather"}
ONE = {"BENCH_WRITE": "many", "BENCH_TENANTS": "1"}
_MANY = ("100 per write_many", {"BENCH_WRITE": "many"})

OURS = (
    _our(
        "shardq.Worker",
        "threads",
        "its default of 64 threads; 500 read ahead, since a job takes less than a round trip (default 0)",
        *_MANY,
    ),
    _our(
        "shardq.Worker, single writes",
        "threads",
        "the same, each job written by a call of its own",
        "one by one",
        SINGLE,
    ),
    _our(
        "shardq.Worker, gathered writes",
        "threads",
        "the same, each job written by a call of its own in a task of asyncio, as arq and taskiq do",
        "100 at a time (gather)",
        GATHER,
    ),
    _our("shardq.Worker, one tenant", "threads", "the same, all jobs of one tenant", "100 per write_many", ONE),
    _our("shardq.AsyncWorker", "asyncio", "the same with 64 tasks of asyncio, without uvloop", *_MANY),
    _our("shardq, by hand", "hand", "a loop: read_many(100), the jobs one by one, ack_many", *_MANY),
)
_CELERY = ("celery", "-A", f"{JOBS}.celery_jobs", "worker", "-l", "WARNING", "--pool", "solo")
_CELERY_QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat")
_CELERY_WHY = "solo pool (threads were slower, for no-ops), prefetch multiplier 32, no results"

OTHERS = (
    Contender(
        "huey", "huey_jobs", ("huey_consumer", f"{JOBS}.huey_jobs.app", "-k", "thread", "-w", "4", "-n", "-q"), _huey,
        ("huey==3.5.4", REDIS, HIREDIS),
        "RedisHuey (a list and BRPOP), 4 threads, no periodic tasks, no results", "one by one",
        "never", "lost: it was popped",
    ),
    Contender(
        "dramatiq", "dramatiq_jobs", ("dramatiq", f"{JOBS}.dramatiq_jobs", "--processes", "1", "--threads", "1"),
        _dramatiq, ("dramatiq[redis]==2.2.1", REDIS, HIREDIS),
        "1 thread and a prefetch of 100: four times as fast as its defaults (8 threads, 16), whose pauses are long",
        "one by one",
        "after the job", "again when its worker was silent for 60 s", {"dramatiq_queue_prefetch": "100"},
    ),
    Contender(
        "arq", "arq_jobs", ("arq", f"{JOBS}.arq_jobs.Settings", "--custom-log-dict", f"{JOBS}.quiet.LOGGING"), _arq,
        ("arq==0.28.0", UVLOOP, "redis[hiredis]==5.3.1", HIREDIS),
        "uvloop, max_jobs 100, poll_delay 10 ms (its default of 500 ms caps the rate), results not kept",
        "100 at a time (gather)",
        "after the job", "again when its job_timeout ends (default 310 s)",
    ),
    Contender(
        "taskiq", "taskiq_jobs",
        ("taskiq", "worker", f"{JOBS}.taskiq_jobs:broker", "--workers", "1", "--log-level", "WARNING"), _taskiq,
        ("taskiq==0.13.0", "taskiq-redis==1.2.4", REDIS, HIREDIS, UVLOOP),
        "RedisStreamBroker (the one with acks), uvloop, its default of 100 tasks at a time, no results",
        "100 at a time (gather)",
        "after the job; the entry stays", "again after 10 min",
    ),
    Contender(
        "BullMQ", "bullmq_jobs", ("node", "benchmarks/workers/bullmq_jobs.js", "work"), _bullmq,
        ("bullmq@6.7.0", "ioredis@5.8.2"),
        "one process of Node, 100 jobs at a time, finished ones are not kept", "100 per addBulk",
        "after the job", "again when its lock ended and another worker looks (default 30 s)", node=True,
    ),
    Contender(
        "RQ, no fork", "rq_jobs",
        ("rq", "worker", "-q", "-w", "rq.SimpleWorker", "--disable-job-desc-logging", "jobs"), _rq,
        ("rq==2.12.0", REDIS, HIREDIS),
        "no fork, results not kept", "100 per enqueue_many",
        "after the job", "marked as failed; again only with Retry",
    ),
    Contender(
        "RQ, a fork per job", "rq_jobs", ("rq", "worker", "-q", "--disable-job-desc-logging", "jobs"), _rq,
        ("rq==2.12.0", REDIS, HIREDIS),
        "its default worker, results not kept", "100 per enqueue_many",
        "after the job", "marked as failed; again only with Retry", forks=True,
    ),
    Contender(
        "Celery, acks early", "celery_jobs", (*_CELERY, *_CELERY_QUIET), _celery,
        ("celery[redis]==5.7.0", REDIS, HIREDIS),
        _CELERY_WHY, "one by one",
        "before the job", "lost if it ran; prefetched: again after 1 h",
    ),
    Contender(
        "Celery, acks late", "celery_jobs", (*_CELERY, *_CELERY_QUIET), _celery,
        ("celery[redis]==5.7.0", REDIS, HIREDIS),
        "the same, acks_late", "one by one",
        "after the job", "again after 1 h (visibility_timeout)", {"BENCH_ACKS": "late"},
    ),
)  # fmt: skip
