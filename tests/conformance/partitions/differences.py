"""What is different of a queue with partitions: tests of the suite that do not hold there, by the reason why not.

The suite runs so with SHARDQ_PARTITIONS=3, and a part of it in the worlds "parted". What is listed here is not run, or
ends with the error of a setting that is refused: the end of each run says how many there were, for each reason. With
--runxfail all are run: what passes then leaves this list.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

import pytest

from shardq import ConfigError

PARTITIONS: Final = int(os.environ.get("SHARDQ_PARTITIONS", "0"))
"""If any: each queue that the tests of the suite and of the promises open has so many partitions, in all worlds."""

REFUSED: Final = re.compile(
    r"(?P<what>[a-z_]+)(?:=\"queue\")? (?:is not for a queue with partitions|of a queue with partitions stay)"
    r"|a queue with partitions has no (?P<call>[a-z_]+\(\)) yet"
)
"""What the error of a setting or call says that is refused; it names the setting or the call."""

TO_COME: Final = "to come: "
"""How the reason begins of what is not built yet."""

_STREAMS: Final = "each partition has its own streams: a number of them is not that of the queue"
_RAW: Final = "it looks into, or changes, raw keys of the head alone, or takes an id apart"
_BOUND: Final = f"{TO_COME}a bound of the whole queue is shared out; today it bounds each partition by itself"
_UNTOLD: Final = f"{TO_COME}the first call of a client that was told nothing; today it goes to the head alone"

_BY_REASON: Final[Mapping[str, str]] = MappingProxyType(
    {
        _UNTOLD: """
            test_a_blocked_reader_gets_it_at_once
            test_a_resize_in_between_strands_nothing
            test_a_second_write_returns_the_first_ones_id
        """,
        "key_scope cannot be changed": """
            test_the_scope_changes_only_while_no_key_is_remembered
        """,
        _BOUND: """
            test_a_full_window_refuses_new_keys_and_takes_them_again_later
            test_unique_keys_are_bounded_with_dedup_keys
            test_what_waits_for_room_among_the_dead_letters_is_delayed
            test_when_dead_letters_are_full_a_rejected_message_waits_and_is_not_delivered
        """,
        _STREAMS: """
            test_a_client_that_never_read_or_wrote_sees_the_same
            test_a_client_with_an_old_idea_of_the_streams_sees_them_all
            test_a_read_creates_the_queue
            test_each_state_has_its_facts
            test_each_write_takes_the_shortest_stream_of_its_shard
            test_so_do_those_of_many_shard_keys
        """,
        _RAW: """
            test_a_message_is_in_one_stream_with_plain_fields
            test_a_redriven_message_forgets_its_deadline
            test_a_shard_may_be_all_streams
            test_a_write_that_is_refused_leaves_nothing_of_its_producer
            test_an_entry_that_somebody_deleted_is_counted_as_vanished
            test_asking_changes_nothing
            test_each_counter_says_how_messages_went
            test_nothing_is_left_of_a_rush_of_keys
            test_the_count_of_deliveries_outlives_all_that_is_delivered
            test_the_key_is_forgotten_when_its_window_is_over
            test_the_numbers_are_true_at_every_step
            test_the_oldest_age_is_that_of_the_oldest_undelivered_message
            test_what_is_remembered_is_bounded_by_the_window
            test_what_still_waits_is_not_forgotten
        """,
    }
)
DIFFERENCES: Final[Mapping[str, str]] = MappingProxyType(
    {test: reason for reason, tests in _BY_REASON.items() for test in tests.split()}
)
"""The reason of each test, by its name."""


@contextmanager
def expected(test: str) -> Iterator[None]:
    """Run a test of this name of a queue with partitions: expect what is listed, and errors of refused settings."""
    if why := DIFFERENCES.get(test):
        pytest.xfail(f"with partitions: {why}")
    with refused():
        yield


@contextmanager
def refused() -> Iterator[None]:
    """Expect errors of what a queue with partitions refuses."""
    try:
        yield
    except ConfigError as error:
        if found := REFUSED.search(str(error)):
            pytest.xfail(f"with partitions: {found['what'] or found['call']} is refused")
        raise
