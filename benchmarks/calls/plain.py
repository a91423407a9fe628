"""The references through redis-py: lists as it has them, one stream as Redis has it, and the prior art."""

from __future__ import annotations

from benchmarks.calls.action import Action, Given, one_by_one
from benchmarks.prior_art import Bare, PriorArt, connect


def actions(given: Given) -> dict[str, Action]:
    return {**lists(given), **stream(given), **prior(given)}


def lists(given: Given) -> dict[str, Action]:
    """LPUSH and RPOP: no acks, no leases, no tenants."""
    server, name = connect(given.url), f"{given.name}:list"
    payloads = [payload for payload, _ in given.traffic()]
    turns = range(len(payloads))

    def write(_: object) -> list[float]:
        return one_by_one(lambda payload: server.lpush(name, payload), payloads)

    def read(_: object) -> list[float]:
        return one_by_one(lambda _: server.rpop(name), turns)

    for payload, _ in given.traffic(given.waiting) if given.waiting else ():
        server.lpush(name, payload)
    return {
        "lpush": Action(len(payloads), write, finish=lambda _: server.rpop(name, len(payloads))),
        "rpop": Action(len(payloads), read, prepare=lambda: server.lpush(name, *payloads)),
    }


def stream(given: Given) -> dict[str, Action]:
    """XADD; XREADGROUP and then XACK with XDEL; both also in batches."""
    bare = Bare(given.url, f"{given.name}:bare")
    payloads = [payload for payload, _ in given.traffic()]
    parts = [payloads[at : at + given.batch] for at in range(0, len(payloads), given.batch)]

    def consume(count: int) -> None:
        found = bare.read(count)
        bare.ack([entry for entry, _ in found])

    def singles(_: object) -> list[float]:
        return one_by_one(consume, [1] * len(payloads))

    def batches(_: object) -> list[float]:
        return one_by_one(consume, [len(part) for part in parts])

    if given.waiting:
        bare.write_many([payload for payload, _ in given.traffic(given.waiting)])
    return {
        "xadd": Action(len(payloads), lambda _: one_by_one(bare.write, payloads), finish=batches),
        "xreadgroup": Action(len(payloads), singles, prepare=lambda: bare.write_many(payloads)),
        "xadd, batches": Action(len(payloads), lambda _: one_by_one(bare.write_many, parts), finish=batches),
        "xreadgroup, batches": Action(len(payloads), batches, prepare=lambda: bare.write_many(payloads)),
    }


def prior(given: Given) -> dict[str, Action]:
    """One script per message, without leases."""
    queue = PriorArt(given.url, f"{given.name}:prior", given.streams, given.per_shard)
    traffic = given.traffic()

    def write(_: object) -> list[float]:
        return one_by_one(lambda item: queue.write(*item), traffic)

    def consume(_: object) -> None:
        found = queue.read()
        assert found
        queue.ack(found[0], found[1])

    def read(_: object) -> list[float]:
        return one_by_one(consume, traffic)

    for item in given.traffic(given.waiting) if given.waiting else ():
        queue.write(*item)
    return {
        "prior write": Action(len(traffic), write, finish=read),
        "prior consume": Action(len(traffic), read, prepare=lambda: write(None)),
    }
