"""Values of the public API: settings, messages, deliveries, dead letters, events, numbers. No I/O."""

from __future__ import annotations

from shardq.model.action import ActionStatus
from shardq.model.controls import Control, Controls, LimitControl, WeightControl
from shardq.model.dead_letter import DeadLetter
from shardq.model.delivery import DeliveryView, Received
from shardq.model.event import Event, JournalPage
from shardq.model.failure import Failure
from shardq.model.limits import Limits, Plan
from shardq.model.message import Message, MessageId
from shardq.model.minute import Minute, TaskMinute
from shardq.model.outlook import Help, Outlook, TenantOutlook
from shardq.model.peeked import PeekedMessage, PeekedPage, PeekState
from shardq.model.purged import Purged
from shardq.model.queue_settings import QueueSettings
from shardq.model.schedule import Schedule
from shardq.model.settings import QueueConfig
from shardq.model.stats import QueueStats
from shardq.model.status import MessageState, MessageStatus, Progress
from shardq.model.tenant import Neighbour, Tenant
from shardq.model.verdict import Verdict
from shardq.model.where import Where
from shardq.model.worker_status import TaskWork, TenantWork, WorkerStatus
from shardq.model.written import Written

__all__ = [
    "ActionStatus",
    "Control",
    "Controls",
    "DeadLetter",
    "DeliveryView",
    "Event",
    "Failure",
    "Help",
    "JournalPage",
    "LimitControl",
    "Limits",
    "Message",
    "MessageId",
    "MessageState",
    "MessageStatus",
    "Minute",
    "Neighbour",
    "Outlook",
    "PeekState",
    "PeekedMessage",
    "PeekedPage",
    "Plan",
    "Progress",
    "Purged",
    "QueueConfig",
    "QueueSettings",
    "QueueStats",
    "Received",
    "Schedule",
    "TaskMinute",
    "TaskWork",
    "Tenant",
    "TenantOutlook",
    "TenantWork",
    "Verdict",
    "WeightControl",
    "Where",
    "WorkerStatus",
    "Written",
]
