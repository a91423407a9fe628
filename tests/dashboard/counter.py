"""A person at the counter: asks for actions of the page, and acts, as its script does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from starlette.requests import Request

from shardq import Client, Message, Queue
from shardq.client import AsyncClient
from shardq.dashboard import Person, Role, app
from shardq.model.failed import Problem

SITE = "http://localhost"
PEOPLE = {"vera": Role.VIEW, "jonas": Role.ACT, "ada": Role.ADMIN, "axel": Role.ACT}
LATE = TimeoutError("no answer")
SETTINGS: dict[str, Any] = {"streams": 4, "streams_per_shard": 2, "visibility_timeout": 60.0, "journal": 10_000}


def who(request: Request) -> Person | None:
    """The person that a header names."""
    name = request.headers.get("x-person", "jonas")
    return Person(name, PEOPLE[name]) if name in PEOPLE else None


class Answer:
    """What came back: its status, and its JSON."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.body: dict[str, Any] = response.json()

    def __getitem__(self, name: str) -> Any:
        return self.body[name]

    @property
    def text(self) -> str:
        """All that a dialog says, or why something is refused."""
        return self.body.get("text") or " ".join(
            "".join(part[0] for part in each["parts"]) for each in self.body["lines"]
        )


class Visitor:
    """Somebody who has the page open."""

    def __init__(self, client: httpx2.AsyncClient, name: str) -> None:
        self._client, self._headers = client, {"x-person": name, "x-shardq": "1", "origin": SITE}

    async def ask(self, action: str, **args: str) -> Answer:
        return Answer(await self._client.get(f"/ask/{action}", params=args, headers=self._headers))

    async def act(self, action: str, ticket: str, **fields: str) -> Answer:
        body = {"ticket": ticket, "fields": fields}
        return Answer(await self._client.post(f"/act/{action}", json=body, headers=self._headers))

    async def post(self, path: str, content: bytes) -> Answer:
        return Answer(await self._client.post(path, content=content, headers=self._headers))

    async def handle(self, queue: str, action_id: str) -> Answer:
        return Answer(
            await self._client.get("/handle", params={"queue": queue, "id": action_id}, headers=self._headers)
        )

    async def do(self, action: str, /, typed: str = "", **args: str) -> Answer:
        """Ask, and act by the ticket: the dialog that is just clicked through."""
        asked = await self.ask(action, **args)
        assert asked.status == 200, asked.text
        return await self.act(action, asked["ticket"], **({"typed": typed} if typed else {}))


class Counter:
    """The page with its actions on, and a queue to act on."""

    def __init__(self, page: Any, http: httpx2.AsyncClient, client: AsyncClient) -> None:
        self.page, self._http, self.client = page, http, client
        self.handles = page.state.handles

    def visitor(self, name: str = "jonas") -> Visitor:
        return Visitor(self._http, name)


@asynccontextmanager
async def counter(url: str, **settings: Any) -> AsyncIterator[Counter]:
    """Serve the page of a server, without a network."""
    async with AsyncClient.from_url(url, **settings) as client:
        page = app(client, auth=who, actions=True)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(page), base_url=SITE) as http:
            try:
                yield Counter(page, http, client)
            finally:
                await page.state.handles.close()


def open_queue(client: Client, name: str, **settings: Any) -> Queue:
    """A queue that there is."""
    queue = client.queue(name, **SETTINGS | settings)
    queue.declare()
    return queue


def call(task: str) -> list[object]:
    """A message that calls a task."""
    return [task, {}]


def fill(queue: Queue, key: str, count: int, task: str = "mail.send") -> list[str]:
    """So many messages that wait."""
    return [str(each) for each in queue.write_many([Message(call(task), key) for _ in range(count)])]


def bury(queue: Queue, key: str, count: int, why: Problem = LATE, task: str = "mail.send") -> list[str]:
    """So many dead letters."""
    ids = fill(queue, key, count, task)
    queue.reject_many(queue.read_many(count), why)
    return ids


def fail(queue: Queue, key: str, count: int, why: Problem = LATE, delay: float = 600.0) -> list[str]:
    """So many messages that wait for their next try."""
    ids = fill(queue, key, count)
    queue.nack_many(queue.read_many(count), delay=delay, error=why)
    return ids


def events(queue: Queue, kind: str) -> list[tuple[str, str]]:
    """Who asked for events of this kind, and why."""
    return [(each.by, each.note) for each in queue.journal(10_000).events if each.kind == kind]
