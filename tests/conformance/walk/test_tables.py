"""A walk does everything that changes messages, counts every counter, and reads every key."""

from __future__ import annotations

from shardq import Delivery, Queue
from shardq.protocol.keys import QueueKeys
from tests.conformance.walk.audit import COUNTERS
from tests.conformance.walk.ledger import HASHES, SORTED, STREAMS
from tests.conformance.walk.plan import WEIGHTS
from tests.surface import calls, differences, facts
from tests.verbs import LOOKS

STEPS = {
    "Delivery.ack": "ack", "Delivery.extend": "extend", "Delivery.nack": "nack", "Delivery.reject": "reject",
    "Queue.ack_many": "ack_many", "Queue.assign": "assign", "Queue.cancel": "cancel",
    "Queue.cancel, by a filter": "cancel_where", "Queue.configure": "switch_bounds",
    "Queue.delete_dead": "delete_dead", "Queue.delete_dead, by a filter": "delete_where",
    "Queue.nack_many": "nack_many", "Queue.pause": "pause", "Queue.purge": "purge", "Queue.purge, of one": "purge_of",
    "Queue.read": "read_singly", "Queue.read_many": "read", "Queue.redrive": "redrive",
    "Queue.redrive, by a filter": "redrive_where", "Queue.retry_now": "retry_where",
    "Queue.reject_many": "reject_many", "Queue.resize": "resize", "Queue.resume": "resume",
    "Queue.set_limits": "limit", "Queue.set_weights": "weigh", "Queue.unassign": "unassign", "Queue.write": "write",
    "Queue.write_many": "write_many",
}  # fmt: skip
"""The step that makes a call."""

APART = {
    "Queue.stop_action": "how an action goes on: tests/conformance/operate/test_actions.py",
    "Queue.take_over": "the same",
    "Delivery.progress": "a note changes no message: tests/conformance/results",
    "Queue.declare": "it is how a walk begins",
    "Queue.delete": "it ends a queue: tests/conformance/operate/test_declared.py",
    "Queue.delete_plan": "as set_plan",
    "Queue.result": "it waits for what others do",
    "Queue.set_plan": "limits of many tenants at once are limits: tests/conformance/operate/test_plans.py",
}
UNCOUNTED = {
    "adopted": "a walk has no legacy stream: it is 0",
    "failed": "it is compared with the groups of failures",
    "result_bytes": "a walk keeps no results",
    "result_count": "a walk keeps no results",
    "results_refused": "a walk keeps no results",
    "retrying": "it goes down, too: it is compared with the delayed messages",
    "vanished": "nobody deletes entries in a walk: it is 0",
}
NO_COUNTERS = {
    "accounts", "assigned", "created", "epoch", "events", "generation", "id", "offset", "reach", "rules", "streams",
    "wanted",
}  # fmt: skip
"""What else is told of a queue by its state."""


def test_each_call_that_changes_messages_is_a_step() -> None:
    assert differences(STEPS, calls(Queue, Delivery) - {*LOOKS}, APART) == []
    assert {*STEPS.values()} <= WEIGHTS.keys()


def test_each_counter_is_counted() -> None:
    assert differences(COUNTERS, facts() - NO_COUNTERS, UNCOUNTED) == []


def test_each_key_is_read() -> None:
    assert differences([*SORTED, *HASHES, *STREAMS, "cancelled"], QueueKeys.suffixes) == []
