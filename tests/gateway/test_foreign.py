"""A client in another language, which has only the published definition, drives the gateway."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from shardq import AsyncClient
from shardq.datasink import messages
from tests.gateway.conftest import Start, TokenFile
from tests.gateway.test_storing import made
from tests.parts import NODE, NODE_CLIENT

pytestmark = pytest.mark.once
CLIENT = Path(__file__).with_name("client.js")


@pytest.mark.runs_in("test-all")
async def test_a_client_of_node_writes_by_the_published_definition(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    NODE_CLIENT.need()
    await made(redis_client, queue_name)
    secret = tokens.add("node", queues=[queue_name])
    definition = Path(messages.__file__).with_name(messages.FILE)
    async with start(tokens=tokens.path) as (_, address):
        program = await asyncio.create_subprocess_exec(
            "node", CLIENT, definition, address, secret, queue_name, "500",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "NODE_PATH": str(NODE)},
        )  # fmt: skip
        told, wrong = await program.communicate()
    assert program.returncode == 0, wrong.decode()
    found = json.loads(told)
    assert found["acked"] == [f"node-{number}" for number in range(500)]
    assert found["refused"] == {"wrong": "NOT_ALLOWED"}
    assert (found["capacity"], found["code"]) == (1000, 0)
    deliveries = await redis_client.queue(queue_name, create=True).read_many(1000)
    assert sorted(each.payload["number"] for each in deliveries) == list(range(500))
    assert {(each.shard_key, each.headers["from"]) for each in deliveries} == {("tenant", "node")}
