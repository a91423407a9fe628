"""The promises that an engine does not keep yet, one list for each engine. A list only shrinks.

A test in the list must fail, so what begins to hold must leave it. A pattern is the name of a test below this folder:
`*` stands for any text, and a name without a bracket for all cases of its test.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

ENGINE: Final = os.environ.get("SHARDQ_ENGINE") or "present"
"""The engine under test."""

_BATCHES = "a read of 16 or more takes from the streams first, and lets half as many messages in that are due"
_WIDE = "the window is wider while fewer than 8 shard keys are active: places in several streams, ahead of newcomers"
_BUCKETS = "what is due lies in buckets by hash, and who shares one with a flood waits behind its backlog"
_ROUNDS = "a newcomer waits for a round of the streams, in which floods have several messages"
_LIVES = "a unique message that exists is taken for one that can be delivered"
_PARTS = "a batch ends early at a stream that was not declared, and where many tenants have an overflow"
_BACK = "what was taken back goes into the queues of its streams, which counts as nothing found"
_PAUSE = "a pause with an end stays in the limits until somebody lifts it"
_GENERAL = "one limit or weight anywhere sends all calls through the general part"
_FIGURES = "what is withheld is counted when a read withholds it, or looks for it again"
_UNCOUNTED = "what was in flight before there was a cap is not counted"
_PLACE = "a unique message waits among the delayed ones, and loses the place of its number"
_FULL = "its script is refused while Redis is at maxmemory"
_CLOCK = "absolute times are stored, and believed when the clock was put right"
_FRESH = "a client that has seen nothing of the server's clock takes back leases that ended by it"
_GONE = "a late call stores its result, or its loss, in a queue that is gone"
_CHILD = "a limit of a child cannot be named while parents count"
_RESULTS = "nobody sweeps results where none are kept any more"
_AHEAD = "each replacement takes a number, and there are a thousand in a second of an id"
_UNBOUNDED = "an index of times is read or counted as a whole"

EXPECTED: Final[Mapping[str, Mapping[str, str]]] = {
    "present": {
        "test_batches.py::test_a_batch_is_whole_as_long_as_so_much_may_be_delivered[*-100-100-*]": _PARTS,
        "test_batches.py::test_a_batch_is_whole_as_long_as_so_much_may_be_delivered[*-100-500-*]": _PARTS,
        "test_batches.py::test_a_batch_of_100_is_whole_beside_quiet_messages_between_reads[*)-1]": _PARTS,
        "test_batches.py::test_a_batch_of_100_is_whole_beside_quiet_messages_between_reads[*)-5]": _PARTS,
        "test_batches.py::test_a_blocked_reader_of_many_gets_at_once_what_a_limit_had_taken_back"
        "[*-5-a pause that ends]": _BACK,
        "test_batches.py::test_a_read_finds_what_a_limit_that_is_over_had_taken_back[*-5-*]": _BACK,
        "test_batches.py::test_a_read_finds_what_a_limit_that_is_over_had_taken_back[*-100-*]": _BACK,
        "test_batches.py::test_a_read_of_many_is_not_empty_after_a_pause_that_a_read_noticed": _BACK,
        "test_bounds.py::test_no_call_looks_at_all_of_a_large_index[*-due-*]": _UNBOUNDED,
        "test_bounds.py::test_no_call_looks_at_all_of_a_large_index[*-idle-*]": _UNBOUNDED,
        "test_bounds.py::test_no_call_looks_at_all_of_a_large_index[*-leases_over-*]": _UNBOUNDED,
        "test_bounds.py::test_no_call_looks_at_all_of_a_large_index[*-limited-*]": _UNBOUNDED,
        "test_bounds.py::test_no_call_looks_at_all_of_a_large_index[*-limited_below_the_cap-*]": _UNBOUNDED,
        "test_bounds.py::test_no_call_looks_at_all_of_a_large_index[*-own_limits-*]": _UNBOUNDED,
        "test_bounds.py::test_no_call_looks_at_all_of_a_large_index[*-unique-*]": _UNBOUNDED,
        "test_caps.py::test_a_cap_that_is_set_holds_for_who_is_busy[*-configure]": _UNCOUNTED,
        "test_caps.py::test_a_cap_withholds_nothing_of_others[*-configure]": _UNCOUNTED,
        "test_caps.py::test_each_end_of_a_delivery_makes_room_below_a_cap": _UNCOUNTED,
        "test_clocks.py::test_a_clock_that_was_ahead_for_a_while_withholds_nobody_for_longer_than_a_burst"
        "[*-limit_tenant]": _CLOCK,
        "test_clocks.py::test_a_clock_that_was_ahead_for_a_while_withholds_nobody_for_longer_than_a_burst"
        "[*-limit_each]": _CLOCK,
        "test_clocks.py::test_a_pause_that_was_made_while_the_clock_was_ahead_lasts_no_longer_than_it_says": _CLOCK,
        "test_clocks.py::test_first_deliveries_come_in_order_while_the_clock_jumps[*-4]": _WIDE,
        "test_clocks.py::test_the_first_read_of_a_new_client_after_a_jump_takes_no_live_lease[sync-3600000-*]": _FRESH,
        "test_clocks.py::test_the_first_read_of_a_new_client_after_a_jump_takes_no_live_lease[sync-86400000-*]": _FRESH,
        "test_deletion.py::test_a_late_call_of_a_holder_does_not_bring_a_deleted_queue_back"
        "[*-ack with a result]": _GONE,
        "test_deletion.py::test_a_read_whose_answer_was_lost_does_not_bring_a_deleted_queue_back": _GONE,
        "test_deletion.py::test_a_result_that_comes_late_for_many_does_not_bring_a_deleted_queue_back": _GONE,
        "test_fairness.py::test_a_flood_gets_its_share_beside_what_was[*-32-delayed]": _BATCHES,
        "test_fairness.py::test_a_flood_gets_its_share_beside_what_was[*-32-lost]": _BATCHES,
        "test_fairness.py::test_a_flood_gets_its_share_beside_what_was[*-100-delayed]": _BATCHES,
        "test_fairness.py::test_a_flood_gets_its_share_beside_what_was[*-100-lost]": _BATCHES,
        "test_fairness.py::test_a_flood_gets_its_share_of_a_batch_beside_what_came_due": _BATCHES,
        "test_fairness.py::test_a_flood_gets_its_share_of_a_worker_beside_what_was[*-delayed]": _BATCHES,
        "test_fairness.py::test_a_flood_gets_its_share_of_a_worker_beside_what_was[*-lost]": _BATCHES,
        "test_fairness.py::test_a_newcomer_waits_hardly_longer_than_in_the_ideal_queue[*-16-2-100-1-*]": _ROUNDS,
        "test_fairness.py::test_a_newcomer_waits_hardly_longer_than_in_the_ideal_queue[*-16-2-100-10-*]": _ROUNDS,
        "test_fairness.py::test_a_newcomer_waits_hardly_longer_than_in_the_ideal_queue[*-16-2-20-1-*]": _ROUNDS,
        "test_fairness.py::test_a_newcomer_waits_hardly_longer_than_in_the_ideal_queue[*-16-2-20-10-*]": _ROUNDS,
        "test_fairness.py::test_a_newcomer_waits_hardly_longer_than_in_the_ideal_queue[*-16-2-20-32-*]": _ROUNDS,
        "test_fairness.py::test_a_newcomer_waits_hardly_longer_than_in_the_ideal_queue[*-64-4-100-1-*]": _ROUNDS,
        "test_fairness.py::test_a_newcomer_waits_hardly_longer_than_in_the_ideal_queue[*-64-4-100-10-*]": _ROUNDS,
        "test_fairness.py::test_a_newcomer_waits_hardly_longer_than_in_the_ideal_queue[*-64-4-100-32-*]": _ROUNDS,
        "test_fairness.py::test_a_newcomer_waits_hardly_longer_than_in_the_ideal_queue[*-64-4-100-100-*]": _ROUNDS,
        "test_fairness.py::test_a_newcomer_waits_hardly_longer_than_in_the_ideal_queue[*-64-4-20-32-*]": _ROUNDS,
        "test_fairness.py::test_a_newcomer_waits_hardly_longer_than_in_the_ideal_queue[*-64-4-20-100-*]": _ROUNDS,
        "test_fairness.py::test_who_has_one_message_does_not_wait_for_a_flood_of_the_same_kind"
        "[*-delay_both-by hash]": _BUCKETS,
        "test_fairness.py::test_who_has_one_message_does_not_wait_for_a_flood_of_the_same_kind"
        "[*-1-delay_both-in one stream]": _WIDE,
        "test_fairness.py::test_who_has_one_message_does_not_wait_for_a_flood_of_the_same_kind"
        "[*-lose_both-by hash]": _BUCKETS,
        "test_fairness.py::test_who_has_one_message_does_not_wait_for_a_flood_of_the_same_kind"
        "[*-1-lose_both-in one stream]": _WIDE,
        "test_fairness.py::test_who_has_one_message_does_not_wait_for_a_flood_of_the_same_kind"
        "[*-1-nack_both-in one stream]": _WIDE,
        "test_figures.py::test_runnable_is_0_as_soon_as_a_limit_withholds_all[*-a cap]": _FIGURES,
        "test_figures.py::test_runnable_is_0_as_soon_as_a_limit_withholds_all[*-a pause]": _FIGURES,
        "test_figures.py::test_runnable_is_0_as_soon_as_a_limit_withholds_all[*-a rate]": _FIGURES,
        "test_figures.py::test_runnable_is_above_0_exactly_if_a_read_would_get_something[*-pause]": _FIGURES,
        "test_figures.py::test_runnable_is_above_0_exactly_if_a_read_would_get_something[*-queue_rate]": _FIGURES,
        "test_figures.py::test_runnable_is_above_0_exactly_if_a_read_would_get_something[*-rate]": _FIGURES,
        "test_figures.py::test_who_has_scaled_to_zero_learns_that_a_limit_is_over": _FIGURES,
        "test_full_server.py::test_a_full_server_is_drained_to_empty_by_a_fresh_client": _FULL,
        "test_full_server.py::test_each_verb_of_a_fresh_client_runs_on_a_full_server_if_it_may"
        "[*-configure, another lease-*]": _FULL,
        "test_full_server.py::test_each_verb_of_a_fresh_client_runs_on_a_full_server_if_it_may"
        "[*-configure, lifting-*]": _FULL,
        "test_full_server.py::test_each_verb_of_a_fresh_client_runs_on_a_full_server_if_it_may[*-delete_dead-*]": _FULL,
        "test_full_server.py::test_each_verb_of_a_fresh_client_runs_on_a_full_server_if_it_may"
        "[*-delete_dead by id-*]": _FULL,
        "test_full_server.py::test_each_verb_of_a_fresh_client_runs_on_a_full_server_if_it_may[*-pause-*]": _FULL,
        "test_full_server.py::test_each_verb_of_a_fresh_client_runs_on_a_full_server_if_it_may"
        "[*-pause the queue-*]": _FULL,
        "test_full_server.py::test_each_verb_of_a_fresh_client_runs_on_a_full_server_if_it_may"
        "[*-pause with an end-*]": _FULL,
        "test_full_server.py::test_each_verb_of_a_fresh_client_runs_on_a_full_server_if_it_may[*-redrive-*]": _FULL,
        "test_full_server.py::test_each_verb_of_a_fresh_client_runs_on_a_full_server_if_it_may[*-resume-*]": _FULL,
        "test_full_server.py::test_each_verb_of_a_fresh_client_runs_on_a_full_server_if_it_may"
        "[*-resume the queue-*]": _FULL,
        "test_full_server.py::test_each_verb_of_a_fresh_client_runs_on_a_full_server_if_it_may"
        "[*-set_limits, lifting-*]": _FULL,
        "test_full_server.py::test_each_verb_of_a_fresh_client_runs_on_a_full_server_if_it_may"
        "[*-set_weights, lifting-*]": _FULL,
        "test_order.py::test_a_limit_that_comes_and_goes_lets_none_overtake[*-(4, 4)-1-1-*]": _WIDE,
        "test_order.py::test_a_limit_that_comes_and_goes_lets_none_overtake[*-(4, 4)-1-10-a rate]": _WIDE,
        "test_order.py::test_a_limit_that_comes_and_goes_lets_none_overtake[*-(4, 4)-12-10-a cap]": _WIDE,
        "test_order.py::test_a_replaced_message_has_the_place_of_the_first_write": _PLACE,
        "test_order.py::test_a_unique_message_has_the_place_of_its_write": _PLACE,
        "test_order.py::test_a_worker_with_one_handler_runs_it_in_order[*-(4, 4)]": _WIDE,
        "test_order.py::test_delayed_messages_come_in_the_order_of_their_due_times": _WIDE,
        "test_order.py::test_first_deliveries_come_in_order_however_few_tenants_are_active[*-(4, 4)-1-1]": _WIDE,
        "test_order.py::test_first_deliveries_come_in_order_however_few_tenants_are_active[*-(4, 4)-1-2]": _WIDE,
        "test_order.py::test_first_deliveries_come_in_order_however_few_tenants_are_active[*-(4, 4)-1-3]": _WIDE,
        "test_order.py::test_first_deliveries_come_in_order_however_few_tenants_are_active[*-(4, 4)-1-5]": _WIDE,
        "test_order.py::test_first_deliveries_come_in_order_however_few_tenants_are_active[*-(4, 4)-3-1]": _WIDE,
        "test_order.py::test_first_deliveries_come_in_order_however_few_tenants_are_active[*-(4, 4)-3-2]": _WIDE,
        "test_order.py::test_first_deliveries_come_in_order_however_few_tenants_are_active[*-(4, 4)-3-3]": _WIDE,
        "test_order.py::test_what_is_given_back_at_random_lets_no_new_message_overtake_another[*-1-4-*]": _WIDE,
        "test_order.py::test_what_is_given_back_at_random_lets_no_new_message_overtake_another[*-3-4-*]": _WIDE,
        "test_others.py::test_an_empty_read_costs_the_same_while_something_is_in_flight": _GENERAL,
        "test_others.py::test_what_is_set_for_one_tenant_adds_no_command_to_batches_of_others": _GENERAL,
        "test_others.py::test_what_is_set_for_one_tenant_adds_no_command_to_the_calls_of_another": _GENERAL,
        "test_parents.py::test_a_childs_limit_can_be_taken_away_when_parents_count": _CHILD,
        "test_parents.py::test_a_childs_pause_can_be_ended_when_parents_count": _CHILD,
        "test_pauses.py::test_a_pause_that_ended_by_itself_adds_no_command_to_anybodys_calls": _PAUSE,
        "test_pauses.py::test_after_ten_thousand_pauses_that_ended_somebody_can_still_be_paused": _PAUSE,
        "test_times.py::test_replacements_without_end_do_not_run_the_queues_clock_ahead": _AHEAD,
        "test_unique.py::test_a_unique_message_on_its_way_to_full_dead_letters_does_not_swallow_its_successor"
        "[*-existing-*]": _LIVES,
        "test_unique.py::test_a_unique_message_on_its_way_to_full_dead_letters_does_not_swallow_its_successor"
        "[*-raise-*]": _LIVES,
        "test_unique.py::test_a_unique_message_whose_deadline_is_over_does_not_swallow_its_successor": _LIVES,
        "test_unique.py::test_the_successor_of_a_unique_message_that_is_over_has_the_key": _LIVES,
    },
    "new": {
        "test_clocks.py::test_the_first_read_of_a_new_client_after_a_jump_takes_no_live_lease[sync-3600000-*]": _FRESH,
        "test_clocks.py::test_the_first_read_of_a_new_client_after_a_jump_takes_no_live_lease[sync-86400000-*]": _FRESH,
    },
}


def expected() -> Mapping[str, str]:
    """Why tests fail with the engine under test, by pattern."""
    return EXPECTED[ENGINE]


def reason(name: str, patterns: Mapping[str, str]) -> str | None:
    """Why the test *name* fails; None if it does not stand in the list."""
    return next((why for pattern, why in patterns.items() if matches(name, pattern)), None)


def matches(name: str, pattern: str) -> bool:
    """Whether the pattern names the test, also one that is repeated (tests/flicker.py)."""
    name = re.sub(r"-?@\d+\]$", "]", name)
    whole = name if "[" in pattern else name.partition("[")[0]
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), whole) is not None
