"""Prometheus's text, whatever is in it: read back by prometheus-client's parser, and looked at by promtool."""

from __future__ import annotations

import math
import random
import re
import subprocess
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shardq.exporter.text import MAX_VALUE, text_of
from shardq.telemetry.instruments import (
    ADDRESS,
    INSTRUMENTS,
    LABELS,
    OLDEST_JOB,
    PROCESS,
    QUEUE,
    REASON,
    RETRIED,
    SLOTS,
    SYSTEM,
    TASK,
    TENANT_BACKLOG,
    Instrument,
)
from shardq.telemetry.sample import Distribution, Labels, Sample
from tests.parts import PROMETHEUS, prometheus

HOSTILE = {
    "quote": 'a"b',
    "backslash": "a\\b",
    "newline": "a\nb",
    "ends with a backslash": "a\\",
    "looks like a line": 'a"} 1\nshardq_up{queue="x"} 1\n# EOF\n',
    "carriage return": "a\r\nb",
    "nul": "a\0b",
    "line separators": "a\u2028b\x85c\x0bd",
    "reversed": "a\u202eb",
    "surrogate": "a\ud800b",
    "emoji": "a😀b",
    "long": "x" * 10_000,
    "long, of quotes": '"' * 10_000,
    "braces": "{a=b,c}",
    "empty": "",
    "only blanks": "  ",
}


def families(text: str) -> dict[str, Any]:
    """What the parser reads."""
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert len(found) == len(re.findall("^# TYPE ", text, re.MULTILINE))
    return found


def values(text: str, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """The values of the lines called *name*, by their labels."""
    return {
        tuple(sample.labels.items()): sample.value
        for family in families(text).values()
        for sample in family.samples
        if sample.name == name
    }


def some(instrument: Instrument, labels: Labels = (), number: float = 1) -> Sample:
    """A sample of any instrument."""
    counts = tuple(range(len(instrument.buckets) + 1))
    return Sample(instrument, labels, Distribution(counts, 12.5) if instrument.kind == "histogram" else number)


def test_all_instruments_are_read_back() -> None:
    samples = [some(each, ((QUEUE, "jobs"), *((name, "x") for name in each.labels))) for each in INSTRUMENTS]
    found = families(text_of(samples))
    kinds = {"counter": "counter", "gauge": "gauge", "sum": "gauge", "histogram": "histogram"}
    assert {name: (each.type, each.documentation) for name, each in found.items()} == {
        each.text.removesuffix("_total"): (kinds[each.kind], each.about) for each in INSTRUMENTS
    }
    for each in found.values():
        for sample in each.samples:
            assert sample.labels["queue"] == "jobs"


def test_a_histogram_counts_up_to_infinity() -> None:
    counts = (3, 0, 2, *(0,) * (len(PROCESS.buckets) - 3), 1)
    text = text_of([Sample(PROCESS, ((QUEUE, "jobs"), (TASK, "t")), Distribution(counts, 1000.25))])
    buckets = values(text, "messaging_process_duration_seconds_bucket")
    labels = (("queue", "jobs"), ("task", "t"))
    assert [float(key[-1][1]) for key in buckets] == [*PROCESS.buckets, math.inf]
    assert [*buckets.values()][:4] == [3, 3, 5, 5]
    assert buckets[*labels, ("le", "+Inf")] == 6
    assert values(text, "messaging_process_duration_seconds_count") == {labels: 6}
    assert values(text, "messaging_process_duration_seconds_sum") == {labels: 1000.25}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_no_name_breaks_a_line(name: str) -> None:
    text = text_of([some(TENANT_BACKLOG, ((QUEUE, name), (LABELS_BY["tenant"], name)), 7)])
    text.encode()  # nothing that UTF-8 lacks
    assert len(text.splitlines()) == 3
    assert all(len(line) < 4 * MAX_VALUE + 200 for line in text.splitlines())
    [(labels, value)] = values(text, "shardq_tenant_backlog").items()
    assert value == 7
    read = dict(labels)["tenant"]
    if len(name) > MAX_VALUE:
        assert read == name[: MAX_VALUE - 1] + "…"
    else:
        assert len(read) == len(name)
        assert all(a == b or not b.isprintable() for a, b in zip(read, name, strict=True))
        assert ("\n" in read) is ("\n" in name)


LABELS_BY = {label: attribute for attribute, label in LABELS.items()}


def test_names_at_random_are_read_back(rng: random.Random) -> None:
    letters = 'ab"\\\n{}=, \t\r\0\x7fé\u2028\ud801😀'
    for _ in range(500):
        names = ["".join(rng.choices(letters, k=rng.randrange(12))) for _ in range(3)]
        text = text_of([some(RETRIED, ((QUEUE, name), (REASON, "retry")), 1) for name in names])
        found = values(text, "shardq_message_retried_total")
        assert sum(found.values()) == 3
        assert len(text.splitlines()) == 2 + len(found)


def test_what_differs_in_nothing_that_is_shown_is_one_line() -> None:
    """Two lines with the same labels would make Prometheus refuse the whole page."""
    two = [((QUEUE, "jobs"), (ADDRESS, host), (SYSTEM, "shardq")) for host in ("a", "b")]
    long = [((QUEUE, "x" * MAX_VALUE + end),) for end in "ab"]
    assert values(text_of(some(RETRIED, labels, 2) for labels in two), "shardq_message_retried_total") == {
        (("queue", "jobs"),): 4
    }
    assert [*values(text_of(some(SLOTS, labels, 2) for labels in two), "shardq_worker_slots").values()] == [4]
    gauges = text_of(some(OLDEST_JOB, labels, number) for labels, number in zip(two, (5, 3), strict=True))
    assert [*values(gauges, "shardq_worker_oldest_job_seconds").values()] == [5]
    assert [*values(text_of(some(RETRIED, labels) for labels in long), "shardq_message_retried_total").values()] == [2]
    histograms = text_of(some(PROCESS, labels) for labels in two)
    assert [*values(histograms, "messaging_process_duration_seconds_sum").values()] == [25]


def test_lines_of_an_instrument_stand_together() -> None:
    samples = [some(each, ((QUEUE, name),)) for name in ("a", "b") for each in (RETRIED, SLOTS)]
    names = [re.split("[{ ]", line)[0] for line in text_of(samples).splitlines() if line[0] != "#"]
    assert names == ["shardq_message_retried_total"] * 2 + ["shardq_worker_slots"] * 2


def test_nothing_is_no_text() -> None:
    assert text_of([]) == ""


@pytest.mark.parametrize("number", [0, 1, 2**60, 0.1, 1e-9, 1e300, math.inf, -math.inf, math.nan])
def test_numbers_are_read_back(number: float) -> None:
    [read] = values(text_of([some(SLOTS, (), number)]), "shardq_worker_slots").values()
    assert read == number or (math.isnan(read) and math.isnan(number))


@PROMETHEUS.needed
def test_promtool_has_nothing_against_it() -> None:
    samples = [
        some(each, ((QUEUE, name), *((label, name) for label in each.labels)))
        for each in INSTRUMENTS
        for name in HOSTILE.values()
    ]
    promtool = prometheus("promtool")
    assert promtool
    told = subprocess.run([promtool, "check", "metrics"], input=text_of(samples).encode(), capture_output=True)
    assert (told.returncode, told.stdout.decode(), told.stderr.decode()) == (0, "", "")
