"""Values of the public API: settings, messages, deliveries, dead letters, events, numbers. No I/O."""

from __future__ import annotations

from shardq.model.dead_letter import DeadLetter
from shardq.model.delivery import DeliveryView, Received
from shardq.model.event import Event, JournalPage
from shardq.model.limits import Limits, Plan
from shardq.model.message import Message, MessageId
from shardq.model.peeked import PeekedMessage, PeekedPage, PeekState
from shardq.model.queue_settings import QueueSettings
from shardq.model.schedule import Schedule
from shardq.model.settings import QueueConfig
from shardq.model.stats import QueueStats
from shardq.model.status import MessageState, MessageStatus, Progress
from shardq.model.tenant import Neighbour, Tenant
from shardq.model.written import Written

__all__ = [
    "DeadLetter",
    "DeliveryView",
    "Event",
    "JournalPage",
    "Limits",
    "Message",
    "MessageId",
    "MessageState",
    "MessageStatus",
    "Neighbour",
    "PeekState",
    "PeekedMessage",
    "PeekedPage",
    "Plan",
    "Progress",
    "QueueConfig",
    "QueueSettings",
    "QueueStats",
    "Received",
    "Schedule",
    "Tenant",
    "Written",
]
