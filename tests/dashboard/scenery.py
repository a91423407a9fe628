"""What tests of scenes have in common: a queue with work, and a look at a screen as the page gets it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from shardq import AsyncClient, Client, Queue, Worker
from shardq.dashboard.channel import MAX_SCENE
from shardq.dashboard.encoding import encoded
from shardq.dashboard.scene import AskedScene
from shardq.dashboard.source import SceneSource
from shardq.dashboard.table import scene_of
from shardq.model.timetable import timetable
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.steps import Call
from shardq.ops.schedules.write import SlotMessage, write_slots
from shardq.tasks import Tasks
from tests.servers import Server
from tests.waiting import eventually

ROW: Final = "0|{slots}|{busy:.2f}|{started}|7|1048576||0.1.0|{host}|{since}|{message}|{task}|{done}|{failed}|||b2"


def look_at(url: str, scene: str, *parts: str, **query: str) -> dict[str, Any]:
    """Return what a screen shows, as the browser reads it. It is never larger than a scene may be."""
    made, told = scene_of(scene), SceneSource
    assert made is not None

    async def look() -> dict[str, Any]:
        async with AsyncClient.from_url(url) as client:
            return await made(told(client), AskedScene(parts, query))

    return read(asyncio.run(look()))


def read(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scene as the browser reads it, and check its size."""
    sent = encoded(found)
    assert len(sent) <= MAX_SCENE, f"{len(sent)} bytes"
    scene: dict[str, Any] = json.loads(sent)
    assert {"said", "now"} <= scene.keys()
    return scene


def text_of(words: Sequence[Sequence[Any]]) -> str:
    """Return a sentence without its marks."""
    return "".join(each[0] for each in words)


def line_of(scene: Mapping[str, Any]) -> str:
    """Return the heading of a screen."""
    return text_of(scene["said"]["line"])


def more_of(scene: Mapping[str, Any]) -> str:
    """Return what stands below the heading."""
    return text_of(scene["said"]["more"])


@contextmanager
def working(client: Client, handler: Any, **options: Any) -> Iterator[Worker]:
    """A worker in a thread, until the end of a `with`."""
    worker = Worker(client.queue(handler) if isinstance(handler, Tasks) else client.queue("jobs"), handler, **options)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(60)


def told(ask: Callable[[], dict[str, Any]], holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Look until something holds of a screen, and return it."""
    last: dict[str, Any] = {}

    def is_so() -> bool:
        nonlocal last
        last = ask()
        return bool(holds(last))

    eventually(is_so, 60, every=0.05, what="a screen")
    return last


def beats(server: Server, queue: Queue, count: int, **known: Any) -> None:
    """Let so many workers tell of themselves, as of now. *known* may have functions of a worker's number."""
    now = int(queue.stats().time * 1000)
    usual: dict[str, Any] = {
        "slots": 8, "busy": 2.0, "started": now - 3_600_000, "host": "host", "since": "", "message": "", "task": "",
        "done": 5, "failed": 1, "heard": now,
    }  # fmt: skip
    with server.client() as raw:
        pipe = raw.pipeline(transaction=False)
        for number in range(count):
            fields = {name: each(number) if callable(each) else each for name, each in (usual | known).items()}
            pipe.hset(queue.state.keys.workers, f"worker-{number}", f"{fields['heard']}|{ROW.format(**fields)}")
        pipe.execute()


CALL_BODY: Final = b"\x92\xaereports.rollup\x80"
"""A call of the task reports.rollup."""


def write_slots_of(queue: Queue, name: str, *ages: float) -> None:
    """Write calls of a schedule as a worker does, for slots that were so many seconds ago."""
    message = SlotMessage(f"u:{name}", timetable(None, "UTC", 60), "acme", "m", CALL_BODY)
    for age in ages:
        made = Call.on(queue.state.keys, "schedules", ("0", 1, name))
        now, _, (_, said, *_) = queue.client.run(retry_until(always(made), queue.state.until(), queue.state.clock))
        slot = int(now - 1000 * age)
        following = said.replace(said.partition(b".")[0], b"%d" % slot, 1).decode()
        assert queue.client.run(write_slots(queue.state, message, [slot], said, following, queue.state.until())) is None
