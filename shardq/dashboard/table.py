"""The scenes by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shardq.dashboard.scene import Scene
from shardq.dashboard.scenes.failures import failures
from shardq.dashboard.scenes.message import message
from shardq.dashboard.scenes.overview import overview
from shardq.dashboard.scenes.queue import queue
from shardq.dashboard.scenes.schedules import schedules
from shardq.dashboard.scenes.settings import settings
from shardq.dashboard.scenes.tenant import tenant
from shardq.dashboard.scenes.tenants import tenants
from shardq.dashboard.scenes.workers import workers

SCENES: Final[Mapping[str, Scene]] = {
    "overview": overview,
    "queue": queue,
    "tenants": tenants,
    "tenant": tenant,
    "message": message,
    "failures": failures,
    "workers": workers,
    "schedules": schedules,
    "settings": settings,
}
"""The screens: modules, functions and addresses have these names."""


def scene_of(name: str) -> Scene | None:
    """Return the scene of this name; None if there is none."""
    return SCENES.get(name)
