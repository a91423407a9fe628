"""The tasks of Django that have the catalogue's ends, for `running`; a process with Django's settings imports them."""

from __future__ import annotations

import logging
from typing import Any


def begin() -> None:
    """Make this process one of the site's."""
    import django

    django.setup()
    logging.getLogger("shardq").setLevel(logging.CRITICAL)
    from shardq.django import worker

    # A second try knows that it is one by the note of the first, which is left out if it gets no answer in time.
    worker.CALL_TIMEOUT = 60.0  # type: ignore[attr-defined]


def enqueued(form: str, name: str) -> str:
    """Enqueue the task of this form that has the end *name*. Return the id of its message."""
    from tests.django.site import ends

    task = ends.run_async if form == "async-django" else ends.run
    return str(task.enqueue(name).id).rpartition(":")[0]


def all_tasks() -> Any:
    """What a worker runs."""
    from shardq.django.worker import DjangoTasks, backend_of

    return DjangoTasks(backend_of("default"), "default")
