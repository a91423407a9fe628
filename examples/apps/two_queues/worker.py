"""A worker of both queues: three of four slots are for the urgent one, and whoever needs fewer lends them."""

import asyncio

from tasks import URL, tasks, urgent

from shardq import AsyncClient, AsyncWorker


async def main() -> None:
    async with AsyncClient.from_url(URL) as client:
        queues = {client.queue(urgent): 3, client.queue(tasks): 1}
        await AsyncWorker(queues, tasks, concurrency=64).run()


asyncio.run(main())
