"""huey, in its own environment: calling a task puts it on a list, `dequeue` pops it. It has no acks."""

from __future__ import annotations

from benchmarks.calls.action import Action, Crowd, Given, one_by_one
from benchmarks.workers.huey_jobs import app, job

THREADS = 64


def actions(given: Given) -> dict[str, Action]:
    payloads, turns = ["x" * given.payload] * given.messages, range(given.messages)
    many = max(given.messages, THREADS)

    def write(_: object) -> list[float]:
        return one_by_one(job, payloads)

    def read(_: object) -> list[float]:
        return one_by_one(lambda _: app.dequeue(), turns)

    def threads() -> Crowd:
        return Crowd(THREADS, job, ["x" * given.payload] * many)

    def pop_many(_: object) -> None:
        one_by_one(lambda _: app.dequeue(), range(many))

    one_by_one(job, ["x" * given.payload] * given.waiting)
    return {
        "enqueue": Action(given.messages, write, finish=read),
        "dequeue": Action(given.messages, read, prepare=lambda: write(None)),
        f"enqueue, {THREADS} threads": Action(many, Crowd.go, threads, pop_many),
    }
