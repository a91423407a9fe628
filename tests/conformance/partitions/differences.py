"""What is different of a queue with partitions: tests of the suite that do not hold with SHARDQ_PARTITIONS=3, and why.

Beside these, a test is left out that takes a census (it looks into the keys of one queue), or that uses a setting which
a queue with partitions refuses. Only the files of `SEEN` were gone through so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

REFUSED: Final = "not for a queue with partitions|of a queue with partitions stay as they are"
"""What the error of a setting says that is refused."""

SEEN: Final = (
    "inspect/test_stats.py", "inspect/test_status.py", "operate/test_dead.py", "read/test_read.py",
    "settle/test_cancel.py", "settle/test_settle.py", "write/test_dedup.py", "write/test_delay.py",
    "write/test_unique.py", "write/test_write.py",
)  # fmt: skip
"""Files of the suite whose differences are all known."""

_STREAMS: Final = "each partition has its own streams: a number of them is not that of the queue"
_RAW: Final = "it looks into, or changes, raw keys of the head alone, or takes an id apart"
_BOUND: Final = "max_dead and max_dedup bound each partition by itself until bounds are shared out"

DIFFERENCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "test_the_scope_changes_only_while_no_key_is_remembered": "key_scope cannot be changed",
        "test_unique_keys_are_bounded_with_dedup_keys": _BOUND,
        "test_what_still_waits_is_not_forgotten": _RAW,
        "test_a_client_that_never_read_or_wrote_sees_the_same": _STREAMS,
        "test_a_client_with_an_old_idea_of_the_streams_sees_them_all": _STREAMS,
        "test_a_full_window_refuses_new_keys_and_takes_them_again_later": _BOUND,
        "test_a_message_is_in_one_stream_with_plain_fields": _RAW,
        "test_a_read_creates_the_queue": _STREAMS,
        "test_a_redriven_message_forgets_its_deadline": _RAW,
        "test_a_shard_may_be_all_streams": _RAW,
        "test_a_write_that_is_refused_leaves_nothing_of_its_producer": _RAW,
        "test_an_entry_that_somebody_deleted_is_counted_as_vanished": _RAW,
        "test_asking_changes_nothing": _RAW,
        "test_each_counter_says_how_messages_went": _RAW,
        "test_each_state_has_its_facts": _STREAMS,
        "test_each_write_takes_the_shortest_stream_of_its_shard": _STREAMS,
        "test_nothing_is_left_of_a_rush_of_keys": _RAW,
        "test_so_do_those_of_many_shard_keys": _STREAMS,
        "test_the_count_of_deliveries_outlives_all_that_is_delivered": _RAW,
        "test_the_key_is_forgotten_when_its_window_is_over": _RAW,
        "test_the_numbers_are_true_at_every_step": _RAW,
        "test_the_oldest_age_is_that_of_the_oldest_undelivered_message": _RAW,
        "test_what_is_remembered_is_bounded_by_the_window": _RAW,
        "test_what_waits_for_room_among_the_dead_letters_is_delayed": _BOUND,
        "test_when_dead_letters_are_full_a_rejected_message_waits_and_is_not_delivered": _BOUND,
    }
)
"""Tests by their names, with the reasons."""
