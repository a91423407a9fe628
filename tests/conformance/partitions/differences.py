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

ON_CLUSTER: Final = os.environ.get("SHARDQ_ON") == "cluster"
"""Whether these promises are shown on a cluster of three nodes, not on one server."""

PLAIN: Final = "it makes its queue itself, without any, mostly by a clock that it moves"
OWN_SERVER: Final = "it fills, watches, stops or looks into the one server that it is on"
"""Why tests of the promises are left out, whatever their names."""

REFUSED: Final = re.compile(
    r"(?P<what>[a-z_]+)(?:=\"queue\")? (?:is not for a queue with partitions|of a queue with partitions stay)"
    r"|a queue with partitions has no (?P<call>[a-z_]+\(\)) yet"
)
"""What the error of a setting or call says that is refused; it names the setting or the call."""

_STREAMS: Final = "each partition has its own streams: numbers and shares of streams are not those of the queue"
_RAW: Final = "it looks into, or changes, raw keys of the head alone, or takes an id apart"
_INNER: Final = "it runs an operation on the head's own state, past the layer"
_WATCH: Final = (
    "who watches for what comes due is settled within one partition; partitions/test_stands.py has the waits"
)
_CALLS: Final = (
    "it counts calls, or what one partition tells: a reader waits, and looks now and then, at all partitions"
)
_READERS: Final = "it counts the wake-ups of one partition, or waits for more blocked reads than a client has"
_PAGES: Final = "pages are of one partition after the other"
_MOMENTS: Final = "ages and leads are told by each partition for itself, each at a moment of its own"
_EACH: Final = "a call does its bounded part in each partition, or shows the first few of each"
_SETTINGS: Final = "settings show the map, parents stay, delete takes 0 or None, and what is refused is told first"
_SCOPE: Final = "key_scope cannot be changed"
_JOURNAL: Final = "each partition has a journal of its own: numbers of events, and events of settings, are of each"
_PARTS: Final = "each partition has its part of a bound of the whole queue, and a tenant its share of that"
_OWN: Final = "it says itself how many partitions there are, or that there are none"
_IDS: Final = "an id names its partition, so it is none of a queue that is not there"

_BY_REASON: Final[Mapping[str, str]] = MappingProxyType(
    {
        _STREAMS: """
            test_a_client_that_never_read_or_wrote_sees_the_same
            test_a_client_with_an_old_idea_of_the_streams_sees_them_all
            test_a_deleted_queue_is_missing_even_to_who_knew_it
            test_a_queue_that_is_made_anew_has_no_assignment
            test_a_read_creates_the_queue
            test_a_reader_that_always_prefers_a_noisy_stream_does_not_starve_the_others
            test_a_stream_among_many_is_found_though_it_is_not_next
            test_a_stream_that_holds_something_is_read_until_it_is_empty
            test_a_writer_that_was_away_while_the_queue_shrank_does_not_strand_its_message
            test_a_writer_with_another_idea_of_the_number_changes_nothing
            test_batches_may_prefer_too
            test_each_state_has_its_facts
            test_each_write_takes_the_shortest_stream_of_its_shard
            test_growing_keeps_the_shards_and_makes_room
            test_it_has_its_turn_among_the_streams
            test_messages_go_to_the_assigned_streams_also_those_of_clients_that_were_there_before
            test_names_are_taken_as_messages_name_them
            test_one_stream_is_seen_in_the_order_in_which_it_is_then_delivered
            test_one_tenant_and_its_neighbours
            test_preferring_takes_one_turn_ahead_of_its_share_at_most
            test_purging_removes_all_that_waits_and_nothing_else
            test_purging_with_an_old_idea_of_the_streams_leaves_nothing_behind
            test_reads_finish_the_shrinking
            test_shards_are_sound_after_any_mix_of_changes
            test_shards_keep_their_width_when_shards_get_another
            test_shrinking_below_a_shard_is_refused_with_what_to_do
            test_so_do_those_of_many_shard_keys
            test_the_preferred_stream_comes_first
            test_the_settings_of_the_first_client_are_the_queues
            test_what_is_unassigned_is_dealt_again
            test_what_something_else_wrote_there_is_left_out_and_told
        """,
        _RAW: """
            test_a_clock_that_was_set_back_makes_nobody_wait
            test_a_lease_is_extended_once_and_its_work_is_charged_once
            test_a_lease_that_ended_is_counted_when_its_message_is_delivered_again_once
            test_a_letter_of_a_group_that_was_dropped_is_not_counted_down_from_the_next_one
            test_a_message_is_in_one_stream_with_plain_fields
            test_a_message_that_has_come_due_is_removed
            test_a_message_vanishes_whose_entry_another_program_has_deleted
            test_a_payload_that_is_gone_counts_as_vanished
            test_a_rate_is_kept_over_twenty_seconds
            test_a_redriven_message_forgets_its_deadline
            test_a_second_letter_of_a_message_that_is_there_stays_a_letter
            test_a_shard_may_be_all_streams
            test_a_signal_that_nobody_needs_any_more_does_not_end_the_wait
            test_a_state_may_remember_its_keys_for_longer_than_the_queue_says
            test_a_traceback_is_stored_at_most_once_a_minute
            test_a_wait_learns_of_every_other_end
            test_a_worker_that_comes_late_writes_nothing_of_what_was_changed_meanwhile
            test_a_write_that_fails_counts_what_it_forgot
            test_a_write_that_is_refused_leaves_nothing_of_its_producer
            test_an_end_that_nobody_announces_is_seen_beside_others_that_go_on
            test_an_entry_that_somebody_deleted_is_counted_as_vanished
            test_asking_changes_nothing
            test_counts_are_of_five_minutes_each_for_an_hour
            test_dead_letters_and_cancels_are_announced
            test_each_counter_says_how_messages_went
            test_each_state_has_its_messages_and_their_facts
            test_entries_of_earlier_versions_are_read
            test_groups_that_begin_in_one_call_are_counted_once_each
            test_letters_of_an_earlier_version_can_be_deleted_too
            test_letters_of_an_older_version_are_in_nobodys_share
            test_messages_deleted_by_hand_hold_nothing_back_for_ever
            test_no_try_of_many_groups_that_begin_at_once_is_lost
            test_nothing_is_left_of_a_rush_of_keys
            test_nothing_is_left_of_what_an_earlier_version_wrote_and_a_purge_removed
            test_of_many_groups_those_that_were_seen_lately_are_kept_and_their_counts_are_right
            test_old_dead_letters_are_deleted_by_whoever_reads
            test_one_that_another_program_wrote_stops_no_other
            test_one_that_nobody_works_on_is_stopped_at_once_and_can_go_on
            test_raw_entries_decode_into_columns
            test_readers_that_wait_forget_results
            test_results_end
            test_the_count_of_bytes_is_true
            test_the_count_of_deliveries_outlives_all_that_is_delivered
            test_the_key_is_forgotten_when_its_window_is_over
            test_the_last_calls_of_a_schedule_are_known
            test_the_numbers_are_true_at_every_step
            test_the_oldest_age_is_that_of_the_oldest_undelivered_message
            test_the_worst_comes_first
            test_twenty_are_kept_for_a_day
            test_what_a_hostile_caller_says_of_a_try_is_not_believed
            test_what_another_program_wrote_of_the_last_calls_is_passed_over
            test_what_is_given_back_without_a_word_has_not_failed
            test_what_is_remembered_is_bounded_by_the_window
            test_what_others_write_there_is_passed_over
            test_what_still_waits_is_not_forgotten
            test_whatever_ends_a_message_nothing_of_it_is_left
            test_where_many_fail_all_are_counted_and_of_the_first_of_each_second_more_is_told
            test_where_the_keys_were_lost_nobody_is_refused_for_them
            test_who_waits_behind_what_was_given_back_counts_for_the_age
            test_who_waits_while_the_result_comes_misses_nothing
        """,
        _INNER: """
            test_a_call_that_lacks_keys_has_changed_nothing
            test_a_gateways_ids_are_nobody_elses_dedup_keys
            test_a_lease_is_ended_once
            test_a_note_does_not_say_that_a_message_is_done
            test_a_note_is_no_result
            test_a_note_without_room_is_left_out
            test_a_released_key_is_forgotten_and_the_others_are_not
            test_a_result_that_was_kept_does_not_hide_that_the_message_died
            test_a_token_keeps_its_newest_ids_and_takes_no_others_place
            test_a_token_that_may_keep_fewer_than_before_loses_its_oldest
            test_after_a_purge_that_was_cut_short_what_is_left_is_delivered
            test_after_a_refusal_calls_declare_all_keys_for_a_while
            test_an_id_of_which_only_the_end_is_known_is_forgotten
            test_an_id_that_comes_twice_in_one_call_is_one_message
            test_each_read_tells_what_it_left_as_a_glance_would
            test_each_verb_counts_it_once
            test_first_deliveries_come_in_order_beside_others_that_were_lost_before
            test_ids_take_no_place_in_max_dedup
            test_it_waits_for_its_own_delay
            test_messages_that_lie_in_streams_of_an_earlier_size_are_found
            test_more_ids_than_a_token_keeps_in_one_call
            test_more_than_a_thousand_keys_are_released_in_parts
            test_nothing_stays_behind_when_it_is_acked
            test_one_tenant_is_looked_at_alone_and_who_floods_is_its_neighbour
            test_only_the_holder_of_the_lease_notes_anything
            test_the_journal_tells_it_by_the_count
            test_the_payload_is_told_as_long_as_there_is_one
            test_turns_count_as_often_as_their_weights_say
            test_what_is_given_back_uncounted_may_be_delivered_as_often_as_before
            test_what_is_released_or_ends_leaves_no_trace
            test_whoever_waits_gets_the_result_at_once
        """,
        _WATCH: """
            test_a_passed_watch_is_somebodys_once_its_notification_was_taken
            test_a_sooner_moment_is_news_to_those_who_watch_for_a_later_one
            test_a_watch_that_nobody_took_is_taken_by_who_asks_next
            test_a_watch_that_was_passed_on_is_the_sleepers_who_takes_the_notification
            test_news_is_not_passed_on_for_ever_if_those_who_missed_it_are_gone
            test_news_reaches_who_was_not_blocked_when_it_went_round
            test_news_reaches_who_watches_for_a_later_moment
            test_of_many_a_few_look_one_after_the_other_and_the_rest_sleeps
            test_one_that_comes_back_while_others_watch_wakes_nobody
            test_the_news_of_a_moment_goes_round_among_those_who_are_blocked_once
            test_what_comes_sooner_wakes_one_and_what_comes_later_none
            test_what_comes_within_the_deputies_time_is_told_with_the_wake_up
            test_who_does_not_stay_for_so_long_is_not_counted_on
            test_who_is_handed_a_message_does_not_watch_any_more
            test_who_is_handed_a_message_wakes_another_to_watch
            test_who_leaves_last_of_those_that_know_hands_the_moment_on
            test_who_passed_a_watch_on_to_a_deputy_has_a_turn_when_it_comes_back
            test_who_watched_for_what_is_over_hands_on_what_it_hears
        """,
        _CALLS: """
            test_a_job_that_comes_alone_costs_a_write_a_read_and_an_ack
            test_a_pause_that_ended_by_itself_adds_no_command_to_anybodys_calls
            test_a_search_that_takes_too_long_ends_at_the_timeout
            test_after_ten_thousand_pauses_that_ended_somebody_can_still_be_paused
            test_an_empty_read_costs_the_same_while_something_is_in_flight
            test_the_ack_does_not_wait_for_a_message
            test_what_another_reader_has_taken_and_not_acked_ends_the_wait
            test_what_comes_due_after_the_last_look_ends_the_wait
            test_what_is_set_for_one_tenant_adds_no_command_to_batches_of_others
            test_what_is_set_for_one_tenant_adds_no_command_to_the_calls_of_another
            test_what_is_written_before_the_wait_begins_ends_it
            test_what_was_set_for_one_tenant_and_is_lifted_costs_nobody
            test_while_something_comes_soon_a_reader_that_took_all_there_was_stands_by
            test_whose_read_was_full_looks_again
        """,
        _READERS: """
            test_a_blocked_reader_is_woken_when_it_goes_on
            test_a_worker_that_ended_in_order_is_no_reader_that_was_blocked
            test_an_ack_that_makes_room_under_a_cap_wakes_those_who_wait
            test_writes_that_a_rate_holds_back_wake_a_reader_once
        """,
        _PAGES: """
            test_dead_letters_that_are_selected_are_redriven_each_once
            test_delayed_ones_come_by_due_time_and_leases_by_their_end
            test_reads_in_turn_are_seen_in_turn
            test_what_is_held_back_comes_after_the_streams_in_order
        """,
        _MOMENTS: """
            test_a_lease_that_ends_costs_its_length
            test_the_time_since_the_read_is_charged_whatever_ends_the_delivery
            test_who_waits_longest_comes_first
            test_who_waits_longest_for_a_limit_is_found
            test_who_waits_longest_is_found_among_more_than_one_call_looks_at
        """,
        _EACH: """
            test_a_call_takes_a_bounded_part_of_what_is_due_and_few_calls_take_all
            test_a_group_says_since_when_how_often_lately_and_of_whom
            test_a_large_read_that_waited_brings_all_that_came_at_once
            test_an_age_of_more_than_one_look_says_so
            test_beside_full_dead_letters_every_other_message_is_delivered
            test_every_shard_key_has_its_turn_however_many_are_due
            test_what_came_due_and_finds_no_room_comes_with_later_reads
            test_what_comes_again_comes_in_the_order_of_writing
        """,
        _SETTINGS: """
            test_a_bad_change_is_refused_whole
            test_a_difference_is_applied_once
            test_a_queue_that_holds_messages_is_not_deleted_unless_that_is_said
            test_each_setting_is_changed_by_itself_and_told_to_other_clients
            test_operators_calls_do_not_bring_a_deleted_queue_half_back
            test_parents_change_only_while_nothing_counts
            test_several_who_apply_at_once_agree_in_the_end
            test_what_does_not_exist_cannot_be_configured
        """,
        _SCOPE: """
            test_the_scope_changes_only_while_no_key_is_remembered
        """,
        _JOURNAL: """
            test_a_journal_that_is_switched_on_before_the_first_message_lacks_nothing
            test_a_newcomer_waits_hardly_longer_for_a_worker_than_in_the_ideal_queue
            test_dead_letters_are_deleted_by_their_ids
            test_replayed_the_journal_is_the_queue
        """,
        _PARTS: """
            test_a_batch_of_more_than_one_chunk_says_which_were_written
            test_a_full_queue_of_dead_letters_drops_the_oldest_if_told_so
            test_a_full_queue_refuses_a_write_and_takes_it_once_there_is_room
            test_a_full_window_refuses_new_keys_and_takes_them_again_later
            test_a_journal_is_bounded_and_says_how_much_was_lost
            test_a_limit_and_room
            test_a_message_with_two_keys_needs_two_places
            test_a_parent_has_one_share
            test_a_paused_queue_and_its_limits_hold_back_all
            test_a_refusal_tells_who_has_how_much
            test_a_repeated_message_needs_no_place
            test_a_setting_that_was_not_named_is_no_difference
            test_a_tenant_gets_four_fifths_of_them_and_others_get_in
            test_an_error_that_nobody_asks_for_is_raised_at_the_end
            test_greedy_ones_after_each_other_leave_newcomers_a_place
            test_however_greedy_others_are_a_newcomer_gets_its_part
            test_no_more_are_redriven_than_the_queue_has_room_for
            test_of_a_batch_that_would_overfill_the_queue_the_first_are_written
            test_of_a_batch_those_are_refused_that_have_their_share
            test_of_a_full_queue_without_a_window_nobody_knows_a_share
            test_one_alone_gets_four_fifths
            test_results_are_refused_above_the_bounds
            test_the_error_of_the_block_comes_before_those_of_its_writes
            test_the_oldest_is_found_where_letters_before_it_are_gone
            test_unique_keys_are_bounded_with_dedup_keys
            test_what_is_redriven_of_one_tenant_leaves_room_for_others
            test_when_all_is_over_the_bound_is_whole_and_no_counter_is_left
            test_who_replaces_without_end_fills_nothing
            test_with_drop_dead_a_letter_replaces_the_oldest_of_its_own
            test_without_drop_dead_a_letter_above_the_share_waits_for_room
        """,
        _OWN: """
            test_a_blocked_reader_hears_of_a_partition_that_was_added
            test_a_bound_of_the_queue_is_shared_out_anew
            test_a_queue_without_partitions_has_none_of_the_layer
            test_a_queue_without_partitions_is_a_plain_queue_after_its_first_call
            test_of_two_resizes_at_once_one_wins_and_the_other_hears_it
            test_what_the_first_call_of_a_plain_queue_takes
            test_who_only_looks_learns_of_new_partitions
        """,
        _IDS: """
            test_a_queue_without_results_takes_none
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
