"""What failed batches say about a message: a model of a queue and a job, with outages and with poison in it."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import pytest

from shardq.spark.causes import cause_of
from shardq.spark.consume.batches import Batches
from shardq.spark.consume.failures import FailedBatch, Failures, suspects
from shardq.spark.lags import unfinished_offsets

CAUSE = "ValueError: no number"


@dataclass
class Model:
    """A queue whose messages are numbers, and a query that works it off. Each batch takes a second."""

    numbers: Collection[int]
    poison: Collection[int]
    limit: int
    rng: random.Random
    down: Callable[[float], bool] = lambda now: False
    now: float = 0.0
    batches: Batches = field(default_factory=Batches)
    errors: dict[int, str] = field(default_factory=dict)
    due: dict[int, float] = field(default_factory=dict)
    done: list[int] = field(default_factory=list)
    rejected: dict[int, str] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.due = dict.fromkeys(self.numbers, 0.0)

    def step(self) -> None:
        """One batch, if there is anything."""
        self.now += 1
        ready = [number for number, due in self.due.items() if due <= self.now]
        room = self.batches.room(self.limit)
        held = self.rng.sample(ready, min(room, len(ready)))
        chosen = suspects(held, lambda number: self.errors.get(number, ""), "q")
        size, held = (room, chosen) if chosen else (len(held), held)
        if not held:
            return
        self.sizes.append(len(held))
        if self.down(self.now) or any(number in self.poison for number in held):
            self._fail(held, size)
        else:
            self.batches = self.batches.succeeded()
            self.done += held
            for number in held:
                del self.due[number]

    def _fail(self, held: list[int], size: int) -> None:
        for number in held:
            known = Failures.of(self.errors.get(number, "")).after(FailedBatch("q", self.batches.done, len(held)))
            if known.is_cause:
                self.rejected[number] = known.reason(CAUSE)
                del self.due[number]
            else:
                self.errors[number] = known.text(CAUSE)
                self.due[number] = self.now + known.delay
        self.batches = Batches.of(self.batches.failed(size).text.encode())

    def work(self, most: int) -> None:
        """Until nothing is left, in at most so many batches."""
        for _ in range(most):
            if not self.due:
                return
            self.step()
        pytest.fail(f"{len(self.due)} are left after {most} s: {[self.errors.get(number) for number in self.due][:3]}")


@pytest.mark.parametrize(("count", "poison", "limit"), [(200, 1, 10_000), (1000, 3, 10_000), (100, 10, 64)])
@pytest.mark.parametrize("seed", range(3))
def test_exactly_the_poison_is_rejected(count: int, poison: int, limit: int, seed: int) -> None:
    rng = random.Random(seed)
    model = Model(range(count), rng.sample(range(count), poison), limit, rng)
    model.work(2000)
    assert sorted(model.rejected) == sorted(model.poison)
    assert sorted([*model.done, *model.rejected]) == [*range(count)]
    assert all(reason.startswith(CAUSE) for reason in model.rejected.values())


@pytest.mark.parametrize("lasts", [60, 600])
@pytest.mark.parametrize("seed", range(3))
def test_as_long_as_nothing_succeeds_nothing_is_rejected(lasts: int, seed: int) -> None:
    model = Model(range(2000), (), 10_000, random.Random(seed), down=lambda now: now <= lasts)
    for _ in range(lasts):
        model.step()
    assert not model.done
    before = len(model.sizes)
    model.work(100)
    assert (len(model.done), model.rejected) == (2000, {})
    assert len(model.sizes) - before < 40, "batches grow again"


@pytest.mark.parametrize("seed", range(3))
def test_two_outages_with_a_moment_between_them_blame_nobody(seed: int) -> None:
    rng = random.Random(seed)
    up = rng.randint(60, 70)
    model = Model(range(500), (), 10_000, rng, down=lambda now: now < 200 and now not in (up, up + 1))
    model.work(3000)
    assert (len(model.done), model.rejected) == (500, {})


@pytest.mark.parametrize("seed", range(3))
def test_poison_is_found_after_an_outage_and_others_are_not_blamed(seed: int) -> None:
    rng = random.Random(seed)
    model = Model(range(500), (7,), 10_000, rng, down=lambda now: now < 90)
    model.work(3000)
    assert [*model.rejected] == [7]
    assert len(model.done) == 499


def test_poison_beside_traffic_costs_the_others_little() -> None:
    model = Model(range(100), (7,), 10_000, random.Random(1))
    for at in range(120):
        model.due |= dict.fromkeys(range(100 + 50 * at, 150 + 50 * at), 0.0)
        model.step()
    assert [*model.rejected] == [7]
    assert len(model.done) > 5500


def test_the_delay_grows_from_a_second_to_a_minute_while_nothing_succeeds() -> None:
    known, delays = Failures(), []
    for _ in range(9):
        known = known.after(FailedBatch("q", 0, 10))
        delays.append(known.delay)
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert known.after(FailedBatch("q", 1, 10)).delay == 1


def test_what_is_known_outlives_the_driver() -> None:
    known = Failures().after(FailedBatch("9f86d081884c7d65", 3, 200)).after(FailedBatch("9f86d081884c7d65", 4, 100))
    assert Failures.of(known.text(CAUSE)) == known


@pytest.mark.parametrize(
    "text", ["", "ValueError: x", "[batches 1] x", "[batches 1 apart -1 alone 0 row 1 rows 1 done 1 of q] x"]
)
def test_another_last_error_tells_nothing(text: str) -> None:
    assert Failures.of(text) == Failures()


def test_batches_of_another_query_prove_nothing() -> None:
    known = Failures().after(FailedBatch("one", 3, 1)).after(FailedBatch("two", 9, 1)).after(FailedBatch("one", 99, 1))
    assert (known.batches, known.apart, known.most) == (3, 0, 0)


def test_what_another_query_or_somebody_else_has_written_makes_no_suspects() -> None:
    """A tenant's text may stand in a last error, as a worker writes it."""
    known = Failures().after(FailedBatch("one", 3, 200)).after(FailedBatch("one", 4, 100)).text(CAUSE)
    assert suspects([known, "ValueError: x"], str, "one") == [known]
    assert suspects([known, "ValueError: x"], str, "two") == []


def test_a_count_that_was_forgotten_proves_nothing() -> None:
    assert Batches.of(None) == Batches.of(b"junk") == Batches()
    assert Failures().after(FailedBatch("q", 8, 1)).after(FailedBatch("q", 0, 1)).apart == 0


SPARKS = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "job.py", line 19, in work
    df.mapInArrow(poison, df.schema).count()
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "job.py", line 17, in poison
    raise ValueError("no number")
ValueError: no number
of two lines
=== Streaming Query ===
Identifier: [id = a87d3fd1]
Current Committed Offsets: {PythonMicroBatchStream@4f5: {"hold": "f95da7e4", "batch": 1, "rows": {"jobs": 10}}}
Current Available Offsets: {PythonMicroBatchStream@4f5: {"hold": "f95da7e4", "batch": 2, "rows": {"jobs": 5}}}
"""


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ValueError("no number"), "ValueError: no number"),
        (RuntimeError("the sink\nis down"), "RuntimeError: the sink"),
        (KeyError(), "KeyError"),
        (RuntimeError(SPARKS), "ValueError: no number"),
        (OSError("x" * 9000), "OSError: " + "x" * 291),
        (ValueError("\ud800"), "ValueError: ?"),
    ],
)
def test_the_cause_is_one_short_line(error: Exception, cause: str) -> None:
    assert cause_of(error) == cause


def test_the_micro_batch_that_was_under_way_is_the_one_that_is_not_committed() -> None:
    (offset,) = unfinished_offsets(SPARKS)
    assert offset == {"hold": "f95da7e4", "batch": 2, "rows": {"jobs": 5}}
    assert (
        unfinished_offsets(SPARKS.replace('"batch": 2, "rows": {"jobs": 5}', '"batch": 1, "rows": {"jobs": 10}')) == []
    )
    assert unfinished_offsets('ValueError: {"hold": "x", "batch": 3, "rows": {}}') == []
    assert unfinished_offsets("") == []
