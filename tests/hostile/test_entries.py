"""Each public entry answers what it cannot take with an error of shardq's own, and nothing is written."""

from __future__ import annotations

import logging
import random
import resource
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from shardq import ConfigError, Message, ShardqError
from shardq.edge import EdgeMessage
from shardq.errors import QueueMissing
from tests.hostile.entries import Entry, entries
from tests.hostile.values import HOSTILE, OwnError
from tests.hostile.world import World
from tests.selection import SOAK
from tests.servers import Server
from tests.surface import calls

CALLS: Final = 100_000 if SOAK else 3_000
FRESH: Final = 100
"""After so many calls the queue is made anew."""

SILENCE: Final = 60.0
"""A call that takes so many seconds hangs; none of the good values makes one wait for more than one."""

MAX_GROWTH: Final = 600
"""MiB that the process may grow by, of which a call with text of 10 MB takes some."""

MAX_ERROR: Final = 1_000
"""Characters of an error's text. A list of all settings of a queue is the longest part of one."""

SECRET: Final = "hush-4711"
SECRETS: Final = frozenset({"url", "token", "payload", "result", "results"})
EDGE_SECRETS: Final = frozenset({"key", "root_certificates", "certificate"})
"""Parameters that may hold secrets, or a payload."""


class Attack:
    """Calls of entries with hostile arguments, one after the other. What went wrong is in `faults`."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world, self.rng, self.faults = world, rng, list[str]()
        self.call, self.begun, self.count = "", time.monotonic(), 0
        self._entries = entries()

    def run(self, calls: int) -> None:
        """Make so many calls."""
        for self.count in range(calls):
            if self.count % FRESH == 0:
                self.world.fill()
            entry = self.rng.choice(self._entries)
            self._try(entry, dict(self._arguments(entry)))

    def _arguments(self, entry: Entry) -> Iterator[tuple[str, tuple[str, Any]]]:
        count = min(len(entry.parameters), self.rng.choice((1, 1, 1, 2, 3)))
        for name in self.rng.sample(entry.parameters, count):
            yield name, secret(self.rng) if holds_secret(entry, name) and self.rng.random() < 0.3 else self._value()
        if entry.is_open and self.rng.random() < 0.05:
            yield "colour", self._value()

    def _value(self) -> tuple[str, Any]:
        """A hostile value, by itself or within another one, and its name."""
        chosen = self.rng.choice(HOSTILE)
        value = chosen.make()
        field, part = self.rng.choice(Message.__struct_fields__), self.rng.choice(EdgeMessage.__struct_fields__)
        message: dict[str, Any] = {"payload": 1, "shard_key": "t", field: value}
        edge_message: dict[str, Any] = {"payload": 1, "shard_key": "t", "queue": "q", part: value}
        shapes: Mapping[str, Any] = {
            "in a list": lambda: [value],
            "in a dict": lambda: {"t": value},
            "as key": lambda: {value: 1},
            "in a pair": lambda: [("t", value)],
            "first of a pair": lambda: [(value, "t")],
            f"as {field} of a Message": lambda: [Message(**message)],
            f"as {part} of an EdgeMessage": lambda: [EdgeMessage(**edge_message)],
        }
        if self.rng.random() < 0.5:
            return chosen.name, value
        shape = self.rng.choice([*shapes])
        try:
            return f"{chosen.name} {shape}", shapes[shape]()
        except Exception:  # noqa: BLE001 (it cannot be hashed)
            return chosen.name, value

    def _try(self, entry: Entry, hostile: Mapping[str, tuple[str, Any]]) -> None:
        self.call = f"{entry.name}({', '.join(f'{name}: {value}' for name, (value, _) in hostile.items())})"
        self.begun = time.monotonic()
        call = self.world.prepared(entry, {name: value for name, (_, value) in hostile.items()})
        before = self.world.digest()
        try:
            call()
        except OwnError:
            pass
        except Exception as error:  # noqa: BLE001 (that is what is looked for)
            self._judge(entry, error)
            if isinstance(error, ConfigError) and not isinstance(error, QueueMissing) and self.world.digest() != before:
                self._judge_written(entry, hostile, error)

    def _judge_written(self, entry: Entry, hostile: Mapping[str, tuple[str, Any]], error: Exception) -> None:
        """Note that a call that failed has written. What earlier calls began may write meanwhile, so it is repeated."""
        for _ in range(5):
            call = self.world.prepared(entry, {name: value for name, (_, value) in hostile.items()})
            before = self.world.digest()
            with suppress(Exception):
                call()
            if self.world.digest() == before:
                return
        self.faults.append(f"{self.call}: something was written, though {error}")

    def _judge(self, entry: Entry, error: Exception) -> None:
        told = "".join(traceback.format_exception(error))
        if not isinstance(error, ShardqError) and type(error).__name__ not in documented(entry):
            self.faults.append(f"{self.call}: {told[-1_500:]}")
        if len(str(error)) > MAX_ERROR:
            self.faults.append(f"{self.call}: an error of {len(str(error)):,} characters: {str(error)[:200]}")
        if SECRET in told:
            self.faults.append(f"{self.call}: the error shows a secret: {told[-1_500:]}")


def holds_secret(entry: Entry, name: str) -> bool:
    """Whether a parameter may hold a secret."""
    return name in SECRETS or (name in EDGE_SECRETS and "Edge" in entry.name)


def documented(entry: Entry) -> str:
    """What an entry says of itself."""
    described = getattr(entry.owner, entry.call.rstrip("=")) if entry.owner else entry.call
    return described.__doc__ or ""


def secret(rng: random.Random) -> tuple[str, Any]:
    """One of `secrets`."""
    return "a secret", rng.choice([*secrets()])


def secrets() -> Iterator[Any]:
    """A secret in forms that are wrong nearly everywhere."""
    texts = (
        SECRET, f"redis//:{SECRET}@x", f"redis://:{SECRET}@[x", f"redis://u:{SECRET}@x:port/0", f"redis://{SECRET}/x",
        f"redis+cluster://:{SECRET}@a,b:x", f"redis+sentinel://:{SECRET}@a", f"{SECRET}://x", f"rediss://:{SECRET}@x/0?a=b",
        f"{SECRET}\ud800", f"{SECRET}\0",
    )  # fmt: skip
    for text in texts:
        yield from (text, text.encode(errors="replace"), [text], {text: text}, {1: text}, (text,), [[text]], {text})


@pytest.fixture
def world(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)  # a path may be relative
    with ExitStack() as stack:
        yield World(server, tmp_path, stack)


@pytest.mark.once
@pytest.mark.runs_in("test-all", "soak")
@pytest.mark.timeout(3_600 if SOAK else 180)
def test_what_an_entry_cannot_take_is_an_error_of_shardqs_own(
    world: World, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    attack = Attack(world, random.Random(seed))
    attack.run(200)  # so that what is loaded, or made once, is there
    thread = threading.Thread(target=attack.run, args=[CALLS], daemon=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    thread.start()
    while thread.is_alive():
        thread.join(1.0)
        stack = sys._current_frames().get(thread.ident or 0)
        hangs = time.monotonic() - attack.begun > SILENCE
        assert not hangs, f"{attack.call} hangs:\n{''.join(traceback.format_stack(stack))}"
    assert attack.count == CALLS - 1, f"{attack.call} ended the attack"
    assert not attack.faults, "\n\n".join(attack.faults[:20])
    assert SECRET not in caplog.text
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    assert growth < MAX_GROWTH, f"the process grew by {growth} MiB"


@pytest.mark.once
@pytest.mark.runs_in("test-all")
@pytest.mark.timeout(180)
def test_no_error_shows_what_may_be_a_secret(world: World) -> None:
    attack = Attack(world, random.Random(0))
    for entry in entries():
        for name in entry.parameters:
            for value in secrets() if holds_secret(entry, name) else ():
                world.fill() if attack.count % FRESH == 0 else None
                attack.count += 1
                attack._try(entry, {name: (repr(value), value)})
    assert attack.count > 1_000
    assert not attack.faults, "\n\n".join(attack.faults[:20])


def test_the_entries_are_found() -> None:
    """All calls of a server but those without arguments, and of the rest some of each kind and no fewer than before."""
    found = {each.name for each in entries()}
    assert calls() - found == {"Writer.close", "Writer.flush"}
    some = {"Client.from_url", "AsyncQueue.write", "Worker", "Delivery.cost =", "shard", "Tokens.read", "EdgeSettings"}
    assert some <= found
    assert len(found) > 200


def test_each_parameter_that_is_asked_for_has_a_good_value(world: World) -> None:
    world.fill()
    for each in entries():
        world.prepared(each, {})
