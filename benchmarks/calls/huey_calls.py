"""huey, in its own environment: calling a task puts it on a list, `dequeue` pops it. It has no acks."""

from __future__ import annotations

from benchmarks.calls.action import Action, Given, one_by_one
from benchmarks.workers.huey_jobs import app, job


def actions(given: Given) -> dict[str, Action]:
    payloads = ["x" * given.payload] * given.messages
    turns = range(given.messages)

    def write(_: object) -> list[float]:
        return one_by_one(job, payloads)

    def read(_: object) -> list[float]:
        return one_by_one(lambda _: app.dequeue(), turns)

    return {
        "enqueue": Action(given.messages, write, ("lpush",), finish=lambda _: app.flush()),
        "dequeue": Action(given.messages, read, ("brpop",), prepare=lambda: write(None)),
    }
