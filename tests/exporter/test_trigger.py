"""What metadata and queries say, and names of metrics that no two queues have."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardq import ConfigError
from shardq.exporter.policy import METRICS, Policy
from shardq.exporter.trigger import MAX_PLAIN, Trigger, metric_name, trigger_of

names = st.text("abcXYZ019._:/-", min_size=1, max_size=200)


@given(names, names, st.sampled_from(METRICS), st.sampled_from(METRICS))
@example("jobs", "Jobs", "load", "load")
@example("a.b", "a-b", "load", "load")
@example("a-load", "a", "age", "load")
@example("..", ":", "load", "load")
@example("a" * 199 + "b", "a" * 200, "load", "load")
def test_no_two_queues_have_the_same_name_of_a_metric(one: str, other: str, first: str, second: str) -> None:
    found = metric_name(one, first), metric_name(other, second)  # type: ignore[arg-type]
    assert (found[0] == found[1]) == ((one, first) == (other, second))
    for each in found:
        assert re.fullmatch(r"shardq-[a-z0-9]([a-z0-9-]*[a-z0-9])?", each)
        assert len(each) <= MAX_PLAIN + len("shardq--drain") + 1


def test_a_queue_that_is_called_as_a_marked_one_is_marked_itself() -> None:
    """Else somebody could take the name of another queue's metric."""
    marked = metric_name("Jobs", "load").removeprefix("shardq-").removesuffix("-load")
    assert re.fullmatch("jobs-[0-9a-f]{12}", marked)
    assert metric_name(marked, "load") != metric_name("Jobs", "load")


def test_a_queue_with_plain_letters_is_called_as_it_is() -> None:
    assert metric_name("mails-2", "drain") == "shardq-mails-2-drain"


def test_all_that_metadata_may_say() -> None:
    given = {
        "scalerAddress": "scaler:6000", "enableTLS": "true", "queueFromEnv": "jobs", "metric": "age", "target": "0.5",
        "lead": "12.5", "activation": "3",
    }  # fmt: skip
    assert trigger_of(given) == Trigger("jobs", Policy("age", 0.5, 12.5, 3.0))
    assert trigger_of({"queue": "jobs", "target": "10"}) == Trigger("jobs", Policy("load", 10.0, 30.0, 0.0))


def test_a_key_that_is_there_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        trigger_of({"queue": "jobs", "queueFromEnv": "mails", "target": "1"})


@given(st.dictionaries(st.text(max_size=50), st.text(max_size=200), max_size=100))
def test_whatever_metadata_say_they_are_a_trigger_or_a_config_error(metadata: dict[str, str]) -> None:
    told = ""
    try:
        trigger_of({"queue": "jobs", "target": "1", **metadata})
    except ConfigError as error:
        told = str(error)
    assert "\n" not in told
    assert len(told) < 300


@given(st.text(max_size=40) | st.floats().map(repr) | st.integers().map(str))
def test_a_number_is_one_of_digits_within_its_bounds(text: str) -> None:
    try:
        found = trigger_of({"queue": "jobs", "target": text}).policy.target
    except ConfigError:
        return
    assert 0.001 <= found <= 1e9
    assert found == round(float(text), 3)
