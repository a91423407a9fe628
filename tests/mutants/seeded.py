"""Bugs to seed into the code, one at a time, each with the test that finds it.

`bug` says what no longer holds for who uses the queue, so the same bug can be seeded into other code that keeps the
same promise. Where it is seeded today is said by the texts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One seeded bug: in `file`, from the root of the repository on, the text `right` becomes `wrong`.

    `promise` is the number of the promise that it breaks, and `killer` the test that fails with it.
    """

    promise: int
    bug: str
    file: str
    right: str
    wrong: str
    killer: str


MUTANTS: tuple[Mutant, ...] = (
    # 1. At least once
    Mutant(
        1,
        "a message whose lease has ended is never delivered again",
        "lua/leases.lua",
        "  Waiting.give_back(q, a, key, place, id, attempt .. flags, ceil(score))\n",
        "",
        "tests/conformance/settle/test_settle.py::test_an_ended_lease_gives_the_message_to_the_next_reader[sync-valkey]",
    ),
    Mutant(
        1,
        "a message that is given back with a delay is lost",
        "lua/settle.lua",
        "    Due.put_off(q, a, p.key, due, 'd', id, attempt .. flags)\n",
        "",
        "tests/conformance/settle/test_settle.py::test_a_message_nacked_with_a_delay_waits_for_it[sync-valkey]",
    ),
    Mutant(
        1,
        "a worker acks a message although its handler has failed",
        "shardq/worker/outcome.py",
        'return Outcome("nack", backoff(), described(error))',
        "return ACK",
        "tests/worker/test_outcome.py::test_each_ending_has_its_outcome",
    ),
    Mutant(
        1,
        "a gateway acks a message that no queue has taken",
        "shardq/gateway/storing.py",
        'outcome.refused.append((message.message_id, RequestRefused("NO_QUEUE", str(missing))))',
        "outcome.stored.append(message.message_id)",
        "tests/gateway/test_hostile.py::test_each_refusal_has_its_reason_and_the_others_are_stored[valkey]",
    ),
    Mutant(
        1,
        "a producer whose spool is full drops what it has accepted, though it was told to refuse what is new",
        "shardq/edge/spool.py",
        "older = self._oldest(db, first, over) if self._drops_oldest else []",
        "older = self._oldest(db, first, over)",
        "tests/edge/test_spool.py::test_a_full_spool_refuses_all_or_drops_the_oldest",
    ),
    Mutant(
        1,
        "a topic does not reach a queue whose pattern ends with a # that stands for no words",
        "shardq/routing/match.py",
        "        wanted -= 1\n        if left < wanted:",
        "        if left < wanted:",
        "tests/routing/test_topic.py::test_a_pattern_matches_what_amqp_says",
    ),
    # 2. One live lease
    Mutant(
        2,
        "an ack is accepted after the lease has ended",
        "lua/clock.lua",
        "return ends > q.now",
        "return ends > 0",
        "tests/conformance/settle/test_settle.py"
        "::test_a_lease_that_ended_is_worth_nothing_though_nobody_took_the_message[sync-valkey-Delivery.ack]",
    ),
    Mutant(
        2,
        "a holder whose lease has ended leaves a result",
        "lua/results.lua",
        "letters[i] = not Clock.is_live(r.call, score) and 'l'",
        "letters[i] = not score and 'l'",
        "tests/conformance/results/test_results.py::test_only_the_holder_of_the_lease_keeps_a_result[sync-valkey]",
    ),
    Mutant(
        2,
        "a batch brings messages that another one has leased already",
        "lua/streams.lua",
        "    if cursor then State.put(q, 'h' .. (spelled[number] or spell(number)), cursor) end\n",
        "",
        "tests/conformance/read/test_read.py::test_what_is_leased_is_not_handed_out_again[sync-valkey-batches-0]",
    ),
    Mutant(
        2,
        "a holder relies on its lease for longer than the server has granted it",
        "shardq/ops/queue/server_time.py",
        "return sent + visibility_timeout - max(0.002, visibility_timeout * 0.01)",
        "return sent + visibility_timeout + 0.002",
        "tests/unit/protocol/test_lease.py::test_a_holder_stops_believing_before_the_lease_ends",
    ),
    Mutant(
        2,
        "the reply of a caller that was cancelled goes to another caller",
        "shardq/drivers/async_link.py",
        "self._give(sent[0], answer",
        "self._give(next((each for each in sent if not each.future.done()), sent[0]), answer",
        "tests/unit/drivers/test_async_link.py::test_the_reply_of_a_cancelled_caller_goes_to_nobody",
    ),
    # 3. Leases end on time
    Mutant(
        3,
        "a lease that was shortened ends when it would have ended before",
        "lua/settling.lua",
        "    if ends < lease_at then State.put(q, 'lease_at', spell(ends)) end\n",
        "",
        "tests/conformance/read/test_due.py::test_a_lease_that_is_shortened_ends_when_it_says[sync-valkey]",
    ),
    Mutant(
        3,
        "a blocked reader does not look again when the next lease ends",
        "shardq/ops/read/pump.py",
        "min(self._left(until), self.wake_at - now)",
        "self._left(until)",
        "tests/unit/read/test_pump.py::test_a_wait_ends_when_the_next_lease_does",
    ),
    Mutant(
        3,
        "a deadline that is further away than one turn of the timing wheel never comes",
        "shardq/timing/wheel.py",
        "            each.end = each.start + tick\n            self._enqueue(level, each)",
        "            each.end = each.start + tick",
        "tests/timing/test_wheel.py::test_each_entry_runs_once_over_several_wheels",
    ),
    # 4. No lost wake-up, no early Empty
    Mutant(
        4,
        "a message that is written wakes no blocked reader",
        "lua/write.lua",
        "  Notifications.notify_reader(q, place)\n",
        "",
        "tests/conformance/read/test_blocking.py::test_a_signal_that_nobody_needs_any_more_does_not_end_the_wait[sync-valkey]",
    ),
    Mutant(
        4,
        "a delayed message that comes due wakes no blocked reader",
        "lua/read.lua",
        "till or min(q.lease_at, q.due_at), watch",
        "till or q.lease_at, watch",
        "tests/conformance/read/test_blocking.py::test_a_delayed_message_wakes_a_reader_when_it_is_due[sync-valkey]",
    ),
    Mutant(
        4,
        "who watched for what time brings is handed a message, and nobody watches any more",
        "lua/notifications.lua",
        "  if q.waiting <= q.now or not lacks_watcher(q, at) then return end\n",
        "  do return end\n",
        "tests/conformance/read/test_watch.py::test_who_is_handed_a_message_wakes_another_to_watch[sync-valkey]",
    ),
    Mutant(
        4,
        "who leaves before a moment tells nobody who stays",
        "lua/notifications.lua",
        "  if q.hands_on and q.waiting > q.now then",
        "  if false then",
        "tests/conformance/read/test_watch.py::test_who_leaves_before_a_moment_hands_it_to_who_stays[sync-valkey]",
    ),
    Mutant(
        4,
        "a blocked read gives up before its time",
        "shardq/ops/read/waiting.py",
        "            if waiter.until <= now:\n",
        "            if waiter.read_at <= now:\n",
        "tests/unit/read/test_pump.py::test_a_wait_is_in_slices_and_ends_when_the_last_gives_up",
    ),
    # 5. Fair, with a bound
    Mutant(
        5,
        "one tenant alone uses a bound up, so that a newcomer is refused",
        "lua/shares.lua",
        "local FREE_TIMES = 4",
        "local FREE_TIMES = 1000000",
        "tests/conformance/write/test_shares.py::test_one_alone_gets_four_fifths[sync-valkey-5-4]",
    ),
    Mutant(
        5,
        "tenants who come one after the other use a bound up, so that a newcomer is refused",
        "lua/shares.lua",
        "local LAST_PART = 25",
        "local LAST_PART = 1000000",
        "tests/conformance/write/test_shares.py::test_greedy_ones_after_each_other_leave_newcomers_a_place[sync-valkey-length]",
    ),
    Mutant(
        5,
        "who writes its messages one by one has more of them in the shared streams than the window allows",
        "lua/streams.lua",
        "if a.behind > 0 or a.taken >= q.rules.window then return false end",
        "if a.behind > 0 then return false end",
        "tests/conformance/read/test_fairness.py::test_single_writes_heed_the_window_and_keep_their_order[sync-valkey]",
    ),
    Mutant(
        5,
        "who writes in batches has more messages in the shared streams than the window allows",
        "lua/write.lua",
        "    if Streams.goes_to_stream(q, a) then\n",
        "    if m.index > 1 or Streams.goes_to_stream(q, a) then\n",
        "tests/conformance/read/test_fairness.py"
        "::test_a_shard_key_holds_no_more_than_the_window_in_the_shared_streams[sync-valkey]",
    ),
    Mutant(
        5,
        "reads empty one stream before they go on to the next",
        "lua/streams.lua",
        "    q.next_stream = number + 1\n",
        "    q.next_stream = number\n",
        "tests/conformance/read/test_read.py::test_reads_take_turns_over_the_streams[sync-valkey]",
    ),
    Mutant(
        5,
        "a shard key is delivered faster than its rate",
        "lua/leases.lua",
        "    if a.ruled and a.interval > 0 then a.full_at = Limits.full_after(a.full_at, a.interval, q.now) end\n",
        "",
        "tests/conformance/operate/test_limits.py::test_a_rate_lets_a_burst_pass_and_then_one_at_a_time[sync-valkey]",
    ),
    Mutant(
        5,
        "a shard key that is paused takes its turns all the same",
        "lua/limits.lua",
        "  if a.pause > now then return 0 end\n",
        "",
        "tests/conformance/operate/test_limits.py::test_a_paused_shard_key_is_passed_over_and_comes_back[sync-valkey]",
    ),
    Mutant(
        5,
        "nobody looks when limits end",
        "lua/limits.lua",
        "  if ends and (not at or ends < at) then return ends end\n",
        "",
        "tests/conformance/operate/test_limits_end.py::test_nothing_is_left_behind[sync-valkey]",
    ),
    Mutant(
        5,
        "a clock that was set back prolongs limits that end",
        "lua/limits.lua",
        "    local till = min(kept[at], now + kept[at + 1])\n",
        "    local till = kept[at]\n",
        "tests/promises/test_clocks.py::test_limits_that_were_given_while_the_clock_was_ahead_end_no_later_than_they_say"
        "[sync-Limits(max_in_flight=1, rate=None, burst=None)]",
    ),
    Mutant(
        5,
        "after one that used idle capacity alone, whoever comes later starves",
        "lua/virtual.lua",
        "  if service > slowly then\n",
        "  if false then\n",
        "tests/promises/test_latecomers.py::test_after_a_batch_at_night_all_who_come_in_the_morning_get_the_same[valkey]",
    ),
    Mutant(
        5,
        "a child that leaves after each job and comes back has credit each time",
        "lua/children.lua",
        "  child.served = child.flight == 0 and max(child.served or virtual, virtual) or child.served or virtual\n",
        "  child.served = virtual\n",
        "tests/promises/test_siblings.py::test_a_child_that_leaves_after_each_job_and_comes_back_gains_nothing[valkey]",
    ),
    Mutant(
        5,
        "reads of few messages leave nothing for who waits in turns, while new shard keys come",
        "lua/read.lua",
        "floor((due + (one + (other or 0)) % 8) / 8)",
        "floor(count / 8)",
        "tests/promises/test_fairness.py"
        "::test_a_flood_that_waits_has_one_delivery_of_eight_beside_new_shard_keys[usual-valkey-False-2-sync]",
    ),
    Mutant(
        5,
        "a lease that was extended and then ends is charged twice",
        "lua/leases.lua",
        "Leases.charged_until(score) or charged_since(marks)",
        "charged_since(marks)",
        "tests/promises/test_charges.py"
        "::test_a_lease_that_ends_is_charged_once_however_it_was_extended[valkey-by its length]",
    ),
    # 6. Resize is safe
    Mutant(
        6,
        "shrinking drops a stream that still holds a message",
        "lua/queue.lua",
        "    if call('XLEN', key) > 0 or tonumber(call('HGET', meta, key) or 0) > 0 then break end\n",
        "",
        "tests/conformance/queue/test_resize.py"
        "::test_a_stream_that_holds_something_is_read_until_it_is_empty[sync-valkey-4-3-3]",
    ),
    Mutant(
        6,
        "with one stream more, nearly every shard key gets another shard",
        "shardq/sharding.py",
        "hashed.update(key)",
        'hashed.update(b"%d" % streams + key)',
        "tests/unit/shardq/test_sharding.py::test_growing_moves_few_keys_by_one_stream",
    ),
    # 7. A write is idempotent
    Mutant(
        7,
        "a dedup key is forgotten long before its window is over",
        "lua/unique.lua",
        "local ends = spell(q.now + window)",
        "local ends = spell(q.now + window / 1000)",
        "tests/conformance/write/test_dedup.py::test_the_key_is_forgotten_when_its_window_is_over[sync-valkey]",
    ),
    Mutant(
        7,
        "two messages of one batch with the same unique key are both stored",
        "lua/write.lua",
        "    first['u:' .. key] = i\n    return false\n",
        "    return false\n",
        "tests/conformance/write/test_unique.py::test_a_batch_is_compared_with_itself[sync-valkey-{'window': 0}]",
    ),
    Mutant(
        7,
        "a message that came due and is replaced counts as in flight, so its unique key gets another message",
        "lua/operate.lua",
        "  local lies_by = match(old, ' t%d+') or ''\n",
        "  local lies_by = ''\n",
        "tests/conformance/write/test_unique.py::test_a_message_that_came_due_is_replaced_where_it_lies"
        "[sync-valkey-{'window': 0}-None-nobody looked-_written_with_a_delay]",
    ),
    Mutant(
        7,
        "a write whose answer was lost is stored once more by its retry",
        "shardq/ops/queue/numbered.py",
        "retry_replicated(call, until",
        'retry_replicated(lambda again: make(ProducerSequence(f"p:{begun_at}", 1)) if again else call(again), until',
        "tests/fault/queue/test_lost_replies.py::test_a_write_is_stored_once_under_the_id_that_it_returns[reply-sync-valkey]",
    ),
    Mutant(
        7,
        "a worker that stood still writes a slot of a schedule that another one has written",
        "lua/write.lua",
        "  if said ~= expected then return {'SLOT', said} end\n",
        "",
        "tests/conformance/schedules/test_year.py::"
        "test_one_that_stood_still_for_twice_the_dedup_window_writes_nothing_twice[valkey]",
    ),
    # 8. Memory is bounded
    Mutant(
        8,
        "what was acked stays in memory",
        "lua/settle.lua",
        "  Messages.drop_body(q, place, id)\n  if marks ~= '' and find(marks, 'e'",
        "  if marks ~= '' and find(marks, 'e'",
        "tests/conformance/settle/test_settle.py::test_an_acked_message_is_gone_with_its_body[sync-valkey]",
    ),
    Mutant(
        8,
        "the journal grows beyond its bound",
        "lua/journal.lua",
        "'MINID', '~', oldest, ",
        "",
        "tests/conformance/inspect/test_journal.py::test_a_journal_is_bounded_and_says_how_much_was_lost[sync-valkey]",
    ),
    Mutant(
        8,
        "a key of a queue with a ttl never expires",
        "lua/shared.lua",
        "for at = 1, #KEYS do\n    if ttl",
        "for at = 1, #KEYS - 1 do\n    if ttl",
        "tests/conformance/queue/test_config.py::test_a_ttl_is_on_all_keys_together[sync-valkey]",
    ),
    Mutant(
        8,
        "bindings that were removed leave nodes behind",
        "shardq/routing/prune.py",
        "        if len(path) == 1:\n            return main",
        "        if path:\n            return main",
        "tests/routing/test_ctrie.py"
        "::test_what_is_left_after_removals_has_no_more_nodes_than_if_it_had_been_all[gil-True]",
    ),
    Mutant(
        8,
        "a large payload that was held back stays when its message is done",
        "lua/settle.lua",
        "      with_payloads(ids)\n",
        "",
        "tests/conformance/write/test_large.py"
        "::test_whatever_ends_a_message_nothing_of_it_is_left[sync-valkey-behind-acked]",
    ),
    Mutant(
        8,
        "a large payload stays when a small one replaces it",
        "lua/operate.lua",
        "  if not payload and Messages.is_apart(old) then",
        "  if not payload and Messages.is_apart(body) then",
        "tests/conformance/write/test_large.py"
        "::test_whatever_ends_a_message_nothing_of_it_is_left[sync-valkey-unique-replaced]",
    ),
    # 9. Lengths are true
    Mutant(
        9,
        "the length counts messages that are not due yet",
        "lua/queue.lua",
        "return max(0, living - max(0, delayed - brought.due) - brought.gone)",
        "return living",
        "tests/conformance/inspect/test_stats.py::test_the_numbers_are_true_at_every_step[sync-valkey]",
    ),
    Mutant(
        9,
        "a message that was cancelled is counted for ever",
        "lua/operate.lua",
        "  State.count_up(q, 'cancelled', 1)\n",
        "",
        "tests/conformance/settle/test_cancel.py::test_a_waiting_message_is_removed[sync-valkey]",
    ),
    Mutant(
        9,
        "what a purge removes counts as acked",
        "lua/purge.lua",
        "  State.count_up(q, 'purged', q.purged)\n",
        "",
        "tests/conformance/inspect/test_stats.py::test_purging_removes_all_that_waits_and_nothing_else[sync-valkey]",
    ),
    Mutant(
        9,
        "the purge of one tenant takes what others have delayed",
        "lua/purge.lua",
        "    if place and is_of(q, target, key) and is_meant(target, id) and is_at_hand(q, target, place) then\n",
        "    if place and is_meant(target, id) and is_at_hand(q, target, place) then\n",
        "tests/conformance/operate/test_purge_of.py"
        "::test_a_parent_takes_all_its_children_along_and_a_child_nobody[sync-valkey]",
    ),
    Mutant(
        9,
        "an action that was taken over goes on in its former process",
        "lua/actions.lua",
        "  if not action or action.holder ~= ARGV[2] then return {'LOST'} end\n",
        "  if not action then return {'LOST'} end\n",
        "tests/conformance/operate/test_actions.py"
        "::test_an_action_is_taken_over_and_the_former_process_does_no_more[sync-valkey]",
    ),
    Mutant(
        9,
        "a delivery that stands in a list twice is ended twice",
        "lua/settle.lua",
        "    local letter = told[token]\n",
        "    local letter\n",
        "tests/conformance/queue/test_same_twice.py::test_a_lease_is_ended_once[sync-valkey-nack-1]",
    ),
    # 10. A message keeps its id, and what is known of it
    Mutant(
        10,
        "a redriven message forgets how often it was delivered before",
        "lua/letters.lua",
        "local attributes = ' c' .. letter[6]",
        "local attributes = ''",
        "tests/conformance/operate/test_dead.py::test_a_redriven_message_keeps_its_id_headers_payload_and_count[sync-valkey]",
    ),
    Mutant(
        10,
        "a dead letter does not say why its message was rejected",
        "lua/settle.lua",
        "local reason = is_rejected and last_error or 'max deliveries'",
        "local reason = 'max deliveries'",
        "tests/conformance/settle/test_settle.py::test_a_rejected_message_is_a_dead_letter[sync-valkey]",
    ),
    # 11. Order within a shard key
    Mutant(
        11,
        "of what is held back of a shard key, the tenth message comes before the ninth",
        "lua/overflow.lua",
        "text = text .. spell(size) .. ':' .. head .. payload",
        "text = spell(size) .. ':' .. head .. payload .. text",
        "tests/conformance/write/test_write.py::test_order_within_a_stream_is_that_of_the_writes[sync-valkey]",
    ),
    Mutant(
        11,
        "after a lost connection, a producer sends the newest of what was not acked first",
        "shardq/flow/sender.py",
        "message for message, attempts in self._known.items() if attempts)",
        "message for message, attempts in reversed(self._known.items()) if attempts)",
        "tests/flow/test_sender.py::test_a_lost_connection_sends_all_again_in_their_order",
    ),
    # 11. Order within a shard key
    Mutant(
        11,
        "what is new goes before what was tried, while leases that ended are taken back",
        "lua/turns.lua",
        "  if not q.is_catching_up or a.flight == 0 then",
        "  if true then",
        "tests/promises/test_order.py::test_what_was_tried_goes_first_while_ended_leases_are_taken_back[usual-sync-valkey]",
    ),
    # 12. Bad input gets a clear error, and payloads stay secret
    Mutant(
        12,
        "a queue name with braces is accepted",
        "shardq/arguments.py",
        're.compile(r"[^A-Za-z0-9._:/-]")',
        're.compile(r"[^A-Za-z0-9._:/{}-]")',
        "tests/unit/protocol/test_keys.py::test_bad_names_are_refused",
    ),
    Mutant(
        12,
        "the error of a payload that cannot be decoded brings the payload into the log",
        "shardq/codec.py",
        'raise (_of_read(found) if verb == "decode" else found) from None',
        'raise (_of_read(found) if verb == "decode" else found) from error',
        "tests/unit/shardq/test_codec.py::test_errors_do_not_quote_the_body",
    ),
)
