"""A backend for the tasks of Django 6: `TASKS = {"default": {"BACKEND": "shardq.django.Backend"}}` (docs/django.md).

`python manage.py shardq_worker` runs the tasks of all its queues, if `shardq.django` is one of `INSTALLED_APPS`, and
`shardq worker shardq.django:tasks` those of its first queue; `shardq.django:tasks.emails` names another one.
"""

from __future__ import annotations

from typing import Any

from shardq.extras import extra

with extra("django"):
    import django  # noqa: F401

from shardq.django.declared import options

__all__ = ["Backend", "options", "tasks"]


def __getattr__(name: str) -> Any:
    """Import what needs Django, and its settings, when it is first used: apps are imported before these are ready."""
    if name == "Backend":
        from shardq.django.backend import Backend

        return Backend
    if name == "tasks":
        from shardq.django.worker import first_tasks

        return first_tasks()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
