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

    return {
        "lpush": Action(len(payloads), write, ("lpush",), finish=lambda _: server.delete(name)),
        "rpop": Action(len(payloads), read, ("rpop",), prepare=lambda: server.lpush(name, *payloads)),
    }


def stream(given: Given) -> dict[str, Action]:
    """XADD; XREADGROUP and then XACK with XDEL."""
    bare = Bare(given.url, f"{given.name}:bare")
    payloads = [payload for payload, _ in given.traffic()]
    turns = range(len(payloads))

    def consume(_: object) -> None:
        ((entry, _payload),) = bare.read(1)
        bare.ack([entry])

    def drain(_: object) -> None:
        while found := bare.read(given.batch):
            bare.ack([entry for entry, _ in found])

    return {
        "xadd": Action(len(payloads), lambda _: one_by_one(bare.write, payloads), ("xadd",), finish=drain),
        "xreadgroup": Action(
            len(payloads),
            lambda _: one_by_one(consume, turns),
            ("xreadgroup", "xack", "xdel"),
            prepare=lambda: bare.write_many(payloads),
        ),
    }


def prior(given: Given) -> dict[str, Action]:
    """One script per message, without leases."""
    queue = PriorArt(given.url, f"{given.name}:prior", given.streams, given.per_shard)
    traffic = given.traffic()
    turns = range(len(traffic))

    def write(_: object) -> list[float]:
        return one_by_one(lambda item: queue.write(*item), traffic)

    def consume(_: object) -> None:
        found = queue.read()
        assert found
        queue.ack(found[0], found[1])

    def drain(_: object) -> None:
        while found := queue.read():
            queue.ack(found[0], found[1])

    return {
        "prior write": Action(len(traffic), write, ("evalsha",), finish=drain),
        "prior consume": Action(
            len(traffic),
            lambda _: one_by_one(consume, turns),
            ("evalsha", "xack", "xdel"),
            prepare=lambda: write(None),
        ),
    }
