"""The table of shapes names each public method once, and no other."""

from __future__ import annotations

from shardq import Delivery, Queue
from shardq.client.job import Job
from shardq.client.schedules import Schedules
from shardq.partitions.shapes import _NAMES, SHAPES
from tests.surface import TWINS, differences, methods

OF_NO_SERVER = {
    "Job.of": "it makes a job of an id",
}


def test_each_public_method_has_one_shape() -> None:
    kinds = (Queue, Delivery, Job, Schedules)
    there = {f"{kind.__name__}.{name}" for kind in kinds for name in methods(kind) | methods(TWINS[kind])}
    assert differences(SHAPES, there, OF_NO_SERVER) == []
    named = [name for names in _NAMES.values() for name in names.split()]
    assert len(named) == len(set(named)) == len(SHAPES)
