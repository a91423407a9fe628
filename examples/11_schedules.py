"""Schedules: a task that is called each second, one each night, and a schedule that a user stores at run time."""

import asyncio

from shardq import AsyncClient, AsyncWorker
from shardq.tasks import Tasks

tasks = Tasks("reports", max_schedules=100)
ticked, reported = asyncio.Event(), asyncio.Event()


@tasks.every(seconds=1)
async def tick() -> None:
    ticked.set()


@tasks.cron("0 3 * * *", tz="Europe/Berlin", catch_up="once")
async def cleanup() -> None:
    print("each night")


@tasks.task
async def report(days: int) -> None:
    print(f"the report of {days} days, for {tasks.delivery.shard_key}")
    reported.set()


async def main() -> None:
    async with AsyncClient.from_url("shardq://embedded") as client:
        jobs = client.queue(tasks)
        await jobs.schedules.add(
            "weekly", report.call(7), shard_key="tenant-42", cron="0 8 * * MON", tz="America/New_York"
        )
        for each in await jobs.schedules.list():
            print(each.name, each.cron, each.tz)

        worker = AsyncWorker(jobs, tasks)
        running = asyncio.create_task(worker.run())
        await ticked.wait()
        await jobs.schedules.run("weekly")  # now, besides its Mondays
        await reported.wait()
        worker.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main())

# Output:
# weekly 0 8 * * MON America/New_York
# the report of 7 days, for tenant-42
