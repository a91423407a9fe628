"""What several processes have measured is told as if it were one; one that ends takes no count away."""

from __future__ import annotations

import msgspec
import pytest

from shardq.telemetry.family import MAX_SERIES, Family, packed, unpacked
from shardq.telemetry.instruments import BUSY, CONSUMED, OLDEST_JOB, PROCESS, QUEUE, TASK, TENANT_BACKLOG, Instrument
from shardq.telemetry.sample import Distribution, Labels, Sample
from shardq.telemetry.tally import MAX_TASKS, OTHER

JOBS: Labels = ((QUEUE, "jobs"),)


def told(family: Family) -> dict[tuple[str, Labels], float | Distribution]:
    return {(sample.instrument.text, sample.labels): sample.value for sample in family.samples()}


def sample(instrument: Instrument, value: float | Distribution, labels: Labels = JOBS) -> Sample:
    return Sample(instrument, labels, value)


def ran(*counts: int) -> Distribution:
    """Jobs in the first buckets."""
    return Distribution((*counts, *(0,) * (len(PROCESS.buckets) + 1 - len(counts))), float(sum(counts)))


def test_members_are_added_to_what_this_process_has() -> None:
    own = [sample(CONSUMED, 1), sample(BUSY, 2), sample(PROCESS, ran(1, 0, 2)), sample(OLDEST_JOB, 3.0)]
    family = Family(lambda: own)
    family.join().tell([sample(CONSUMED, 10), sample(BUSY, 20), sample(PROCESS, ran(5)), sample(OLDEST_JOB, 2.0)])
    family.join().tell([sample(CONSUMED, 100), sample(CONSUMED, 7, ((QUEUE, "mails"),))])
    assert told(family) == {
        (CONSUMED.text, JOBS): 111,
        (CONSUMED.text, ((QUEUE, "mails"),)): 7,
        (BUSY.text, JOBS): 22,
        (PROCESS.text, JOBS): ran(6, 0, 2),
        (OLDEST_JOB.text, JOBS): 3.0,
    }


def test_counts_of_a_member_stay_when_it_ends() -> None:
    family = Family(list)
    for number in range(3):
        member = family.join()
        member.tell([sample(CONSUMED, 5), sample(BUSY, 1), sample(PROCESS, ran(2)), sample(OLDEST_JOB, 9.0)])
        member.end()
        assert told(family) == {(CONSUMED.text, JOBS): 5 * (number + 1), (PROCESS.text, JOBS): ran(2 * (number + 1))}


def test_what_is_told_after_the_end_is_late() -> None:
    family = Family(list)
    member = family.join()
    member.tell([sample(CONSUMED, 5), sample(BUSY, 1)])
    member.end()
    member.tell([sample(CONSUMED, 6), sample(BUSY, 1)])
    member.end()
    assert told(family) == {(CONSUMED.text, JOBS): 5}


def test_what_a_member_tells_replaces_what_it_told_before() -> None:
    family = Family(list)
    member = family.join()
    for count in (1, 5, 9):
        member.tell([sample(CONSUMED, count)])
        assert told(family) == {(CONSUMED.text, JOBS): count}


def test_names_are_bounded_in_all_together() -> None:
    """Each process has at most so many, and they may be other ones in each that begins."""
    family = Family(list)
    for number in range(5):
        rows = [sample(CONSUMED, 1, ((QUEUE, "jobs"), (TASK, f"{number}-{at}"))) for at in range(MAX_TASKS)]
        member = family.join()
        member.tell(rows)
        if number % 2:
            member.end()
    found = told(family)
    assert len(found) == MAX_TASKS + 1
    assert found[CONSUMED.text, ((QUEUE, "jobs"), (TASK, OTHER))] == 4 * MAX_TASKS
    assert sum(value for value in found.values() if not isinstance(value, Distribution)) == 5 * MAX_TASKS


def test_series_are_bounded() -> None:
    family = Family(list)
    for number in range(MAX_SERIES + 1000):
        member = family.join()
        member.tell([sample(CONSUMED, 1, ((QUEUE, "jobs"), ("tenant", str(number))))])
        member.end()
    found = told(family)
    assert len(found) <= MAX_SERIES + 1
    assert found[CONSUMED.text, ()] == 1000


def test_samples_are_read_back_as_they_were() -> None:
    samples = [
        sample(CONSUMED, 2**60),
        sample(BUSY, 0.5),
        sample(PROCESS, ran(1, 2, 3)),
        sample(TENANT_BACKLOG, 1, ((QUEUE, 'jobs\n"\0'), (TASK, "x" * 10_000))),
    ]
    assert unpacked(packed(samples)) == samples
    assert unpacked(packed([])) == []


def test_a_name_that_utf_8_lacks_hides_nothing() -> None:
    samples = [sample(CONSUMED, 1, ((QUEUE, "a\ud800"),)), sample(BUSY, 2)]
    assert unpacked(packed(samples)) == [sample(CONSUMED, 1, ((QUEUE, "a?"),)), sample(BUSY, 2)]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"a": 1}),
        msgspec.msgpack.encode([1, 2]),
        msgspec.msgpack.encode([["no.such.instrument", [], 1, []]]),
        msgspec.msgpack.encode([[CONSUMED.name, [], 1, [1, 2]]]),
        msgspec.msgpack.encode([[PROCESS.name, [], 1, []]]),
        msgspec.msgpack.encode([[PROCESS.name, [], 1, [1, 2]]]),
        msgspec.msgpack.encode([[CONSUMED.name, [["a"]], 1, []]]),
    ],
)
def test_what_no_process_of_this_version_packed_is_nothing(raw: bytes) -> None:
    assert unpacked(raw) == []
