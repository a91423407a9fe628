"""How each method of a queue goes over its partitions: one table. A test compares it with all public methods.

>>> SHAPES["Queue.write"], SHAPES["Queue.len"]
(<Shape.SHARD_KEY: 'by shard key'>, <Shape.EVERYWHERE: 'everywhere'>)
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class MethodShape(Enum):
    """Which partitions a call goes to."""

    SHARD_KEY = "by shard key"
    """To the home of its shard key."""

    ID = "by id"
    """To the partition that the id names."""

    DELIVERY = "by delivery"
    """To the partition that each delivery was read from."""

    EVERYWHERE = "everywhere"
    """To all, at once. Numbers are added, lists joined; a change is made in each."""

    READ = "read"
    """To those whose turn it is (`turns`), or with a wait to all."""


_NAMES: Final[Mapping[MethodShape, str]] = {
    MethodShape.SHARD_KEY: "Queue.write Queue.write_many Schedules.add",
    MethodShape.ID: (
        "Job.cancel Job.result Job.status Queue.cancel Queue.job Queue.result Queue.status"
    ),
    MethodShape.DELIVERY: (
        "Delivery.ack Delivery.extend Delivery.nack Delivery.on_lost Delivery.processing Delivery.progress "
        "Delivery.reject Queue.ack_many Queue.nack_many Queue.reject_many"
    ),
    MethodShape.EVERYWHERE: (
        "Queue.actions Queue.assign Queue.assignment Queue.configure Queue.controls Queue.dead Queue.declare "
        "Queue.delete Queue.delete_dead Queue.delete_plan Queue.failures Queue.history Queue.journal Queue.len "
        "Queue.limits Queue.outlook Queue.partitions Queue.pause Queue.paused Queue.peek Queue.plans Queue.purge "
        "Queue.redrive Queue.resize Queue.resume Queue.retry_now Queue.set_limits Queue.set_plan Queue.set_weights "
        "Queue.settings Queue.stats Queue.stop_action Queue.take_over Queue.tenant Queue.tenants Queue.unassign "
        "Queue.verdict Queue.weights Queue.workers Schedules.list Schedules.pause Schedules.remove Schedules.resume "
        "Schedules.run"
    ),
    MethodShape.READ: "Queue.read Queue.read_many",
}  # fmt: skip

SHAPES: Final[Mapping[str, MethodShape]] = MappingProxyType(
    {name: shape for shape, names in _NAMES.items() for name in names.split()}
)
"""The shape of each public method of queues, deliveries, jobs and schedules, by its name with threads."""
