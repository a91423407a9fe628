"""The same application with whichever backend the settings name: what became of each call, as a line of JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import django
from django.core.management import call_command

django.setup()

from django.tasks import TaskResult, default_task_backend  # noqa: E402
from django.tasks.signals import task_enqueued, task_finished, task_started  # noqa: E402

from tests.django.site import tasks  # noqa: E402

CALLS: list[tuple[str, Any, tuple[Any, ...], dict[str, Any]]] = [
    ("no arguments", tasks.echo, (), {}),
    ("arguments", tasks.echo, (1, 2.5, "drei", None, [True]), {"k": {"a": [1]}}),
    ("tuples and bytes", tasks.echo, ((1, 2), b"text"), {}),
    ("numbers", tasks.echo, (2**70, -(2**64), 1e300, float("inf")), {}),
    ("text", tasks.echo, ("ä \U0001f600 \0 \ud800",), {}),
    ("async", tasks.echo_async, (1,), {"two": 2}),
    ("another queue", tasks.mail, ("a@example.com",), {}),
    ("wrong arguments", tasks.mail, (1, 2, 3), {}),
    ("missing argument", tasks.mail, (), {}),
    ("unhashable", tasks.hashed, ((1, 2, 3),), {}),
    ("async error", tasks.fails_async, (), {}),
    ("shard key of none", tasks.report, (1,), {}),
    ("shard key", tasks.report, (1,), {"account": "acct-7"}),
    *((f"raises {kind}", tasks.fails, (kind,), {}) for kind in ("value", "exit", "nested", "odd", "group", "unknown")),
    *(
        (f"returns {kind}", tasks.returns, (kind,), {})
        for kind in ("none", "tuple", "bytes", "set", "object", "nan", "big", "deep", "text")
    ),
]
events: dict[str, list[tuple[str, str]]] = {}


def note(name: str) -> Any:
    def receiver(*, task_result: TaskResult, **_: Any) -> None:
        events.setdefault(task_result.id, []).append((name, str(task_result.status)))

    return receiver


def error_of(error: Any) -> tuple[str, str]:
    """The class, and the last line of the traceback, which is the error's own."""
    return f"{error.exception_class.__module__}.{error.exception_class.__qualname__}", error.traceback.splitlines()[-1]


def told(task: Any, result: TaskResult) -> dict[str, Any]:
    try:
        value = ["returned", result.return_value]
    except ValueError as error:
        value = ["ValueError", str(error)]
    return {
        "status": str(result.status),
        "is_finished": result.is_finished,
        "value": value,
        "errors": [error_of(each) for each in result.errors],
        "args": result.args,
        "kwargs": result.kwargs,
        "attempts": result.attempts,
        "backend": result.backend,
        "task": result.task == task,
        "times": result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at,
        "id": isinstance(result.id, str) and 0 < len(result.id) < 64,
        "events": events.get(result.id),
    }


receivers = [(signal, note(name)) for signal, name in
             ((task_enqueued, "enqueued"), (task_started, "started"), (task_finished, "finished"))]  # fmt: skip
for signal, receiver in receivers:
    signal.connect(receiver, weak=False)
written = [(name, task, task.enqueue(*args, **kwargs)) for name, task, args, kwargs in CALLS]
written.append(("aenqueue", tasks.echo, asyncio.run(tasks.echo.aenqueue(7))))
seen = tasks.seen.enqueue(more=3)
if default_task_backend.supports_get_result:
    call_command("shardq_worker", until="empty")
    written = [(name, task, task.get_result(result.id)) for name, task, result in written]
    seen.refresh()
own_id, *rest = seen.return_value
outcomes = {name: told(task, result) for name, task, result in written}
outcomes["context"] = {"own id": own_id == seen.id, "rest": rest}
refused = {}
for name, arguments in (("object", [object()]), ("set", [{1}]), ("bytes", [b"\xff"])):
    try:
        tasks.echo.enqueue(*arguments)
    except (TypeError, ValueError) as error:
        refused[name] = [type(error).__name__, str(error)]
outcomes["refused"] = refused
json.dump(outcomes, sys.stdout)
