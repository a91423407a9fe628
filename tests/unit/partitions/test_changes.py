"""What is told of a change that some partitions have made, and others not."""

from __future__ import annotations

import pytest

from shardq import BackendError, BackendTimeout, ConfigError, DurabilityUnknown, OutcomeUnknown, PartlyDone, ShardqError
from shardq.partitions.changes import all_changed

SILENT = BackendTimeout("no answer; nothing was changed")
UNKNOWN = OutcomeUnknown("no answer; the call may have happened")
HALF = PartlyDone("50 were done before a call failed", 50)
UNSURE = DurabilityUnknown("changed, but 0 of 1 replicas confirmed it", "two")


def said(*outcomes: str | ShardqError, unknown: type[ShardqError] | tuple[()] = ()) -> ShardqError:
    """The error of a change of so many partitions."""
    with pytest.raises(ShardqError) as caught:
        all_changed("jobs", [*enumerate(outcomes)], unknown)
    return caught.value


def test_a_change_of_all_returns_what_each_said() -> None:
    assert all_changed("jobs", [(0, "one"), (1, "two")]) == ["one", "two"]


@pytest.mark.parametrize(
    ("outcomes", "where"),
    [
        (("one", SILENT, "three"), "that were changed: 0, 2; not: 1."),
        ((SILENT, "two", UNKNOWN), "that were changed: 1; perhaps, or in part: 2; not: 0."),
        ((HALF, SILENT), "perhaps, or in part: 0; not: 1."),
        (("one", UNSURE, SILENT), "that were changed: 0, 1; not: 2."),
    ],
)
def test_what_was_changed_in_a_part_says_where_and_what_to_do(
    outcomes: tuple[str | ShardqError, ...], where: str
) -> None:
    error = said(*outcomes)
    assert isinstance(error, PartlyDone)
    assert f"queue 'jobs' {where} Make the same call again" in str(error)
    assert error.done == sum(isinstance(each, (str, DurabilityUnknown)) for each in outcomes)


def test_what_was_changed_nowhere_fails_as_its_partitions_did() -> None:
    refused = ConfigError("too many")
    assert said(refused, ConfigError("too many")) is refused
    assert said(HALF) is HALF
    assert said(SILENT, UNKNOWN) is UNKNOWN, "that of the other would say that nothing was changed"


def test_what_was_changed_everywhere_and_not_confirmed_is_no_failure() -> None:
    error = said("one", UNSURE)
    assert isinstance(error, DurabilityUnknown)
    assert error.result == "one"


def test_who_does_not_have_it_has_not_failed() -> None:
    none = ConfigError("no such plan")
    assert all_changed("jobs", [(0, "one"), (1, none)], ConfigError) == ["one"]
    assert said(none, BackendError("refused"), unknown=ConfigError).args == ("refused",)
    assert said(none, none, unknown=ConfigError) is none
