"""The screen of tenants as the page gets it: who is noisy, who suffers, in each order, of any search."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shardq import AsyncClient, Client, Limits, Queue
from shardq.dashboard.names import address_of, args_of, key_of
from shardq.dashboard.scene import AskedScene, NotThere
from shardq.dashboard.scenes.tenants import tenants
from shardq.dashboard.source import SceneSource
from shardq.dashboard.survey import MAX_ROWS, ORDERS
from tests.dashboard.crowd import HOSTILE, tell
from tests.dashboard.scenery import line_of, look_at, more_of, read, text_of
from tests.servers import Server

pytestmark = pytest.mark.once
SETTINGS = {"streams": 8, "streams_per_shard": 2, "window": 1, "max_dead": 1000}


def write(queue: Queue, **counts: int) -> None:
    queue.write_many([(b"x", name.replace("_", "-")) for name, count in counts.items() for _ in range(count)])


def names(scene: dict[str, Any]) -> list[str]:
    return [row["name"] for row in scene["rows"]]


def test_nobody_is_there(server: Server, queue: Queue) -> None:
    found = look_at(server.url, "tenants", "jobs")
    assert line_of(found) == "0 tenants, none noisy."
    assert (found["rows"], found["total"], found["more"], found["past"]) == ([], 0, 0, None)


def test_no_worker_reads(server: Server, queue: Queue) -> None:
    write(queue, acme=20, blue=1)
    found = look_at(server.url, "tenants", "jobs")
    assert line_of(found) == "No worker reads this queue: 21 messages wait of 2 tenants."
    assert found["said"]["tone"] == "bad"
    assert [(row["name"], row["waits"], row["reasons"]) for row in found["rows"]] == [
        ("acme", 20, {"worker": 20}), ("blue", 1, {"worker": 1}),
    ]  # fmt: skip


def test_one_is_noisy_and_nobody_suffers(server: Server, queue: Queue) -> None:
    write(queue, lumen_labs=3000, cedar_health=188, fern=1)
    queue.set_limits({"cedar-health": Limits(rate=2.0)}, seconds=3600, by="mira")
    queue.pause("slate", seconds=1800, by="jonas")
    write(queue, slate=7)
    tell(server, queue, {"lumen-labs": (300, 90.0), "cedar-health": (60, 40.0), "fern": (100, 0.2), "gone": (20, 0.2)})
    found = look_at(server.url, "tenants", "jobs")
    assert line_of(found) == (
        "1 of 5 tenants is noisy, lumen-labs; nobody suffers: the others wait 0.3 s at most, 99 times in 100."
    )
    assert more_of(found).startswith("cedar-health waits for its limit of 2/s. slate is paused until ")
    lumen, cedar, slate = found["rows"][:3]
    assert (lumen["tone"], lumen["waits"], lumen["reasons"]) == ("warn", 3000, {"turn": 3000})
    assert lumen["share"] == 300 / 480
    assert cedar["reasons"]["limit"] >= 180
    [[css, words]] = cedar["tags"]
    assert (css, text_of(words)[:10]) == ("limit", "2/s until ")
    assert (slate["tone"], slate["reasons"]) == ("pause", {"pause": 7})
    assert text_of(slate["tags"][0][1]).startswith("paused until ")
    assert lumen["served_in"] > 100
    assert cedar["served_in"] == pytest.approx(93, rel=0.1)
    assert 1700 < slate["served_in"] < 1810
    assert names(found)[-1] == "gone"  # it has nothing any more


def test_who_suffers_is_named(server: Server, queue: Queue) -> None:
    write(queue, acme=5)
    tell(server, queue, {"acme": (10, 8.0), "blue": (10, 0.1), "coral": (9, 20.0)})
    found = look_at(server.url, "tenants", "jobs")
    assert line_of(found).startswith("3 tenants, none noisy, but coral, acme suffer: they wait 30 s at most")
    assert found["said"]["tone"] == "warn"


def test_the_whole_queue_is_paused(server: Server, queue: Queue) -> None:
    write(queue, acme=2, blue=1)
    tell(server, queue)
    queue.pause(by="jonas", seconds=100)
    found = look_at(server.url, "tenants", "jobs")
    assert line_of(found) == "The whole queue is paused: 3 messages wait of 2 tenants."
    assert [row["reasons"] for row in found["rows"]] == [{"pause": 2}, {"pause": 1}]


def test_orders(server: Server, queue: Queue) -> None:
    write(queue, worked_on=3)
    assert len(queue.read_many(3)) == 3
    write(queue, dead=2)
    queue.reject_many(queue.read_many(2), "no")
    write(queue, many=9, few=1)
    tell(server, queue, {"few": (5, 0.01), "slow": (3, 70.0), "busy": (90, 0.02)})
    first = {order: names(look_at(server.url, "tenants", "jobs", order=order))[0] for order in ORDERS}
    assert first.pop("oldest") in ("many", "few")
    assert first == {"waiting": "many", "flight": "worked-on", "share": "busy", "p99": "slow", "dead": "dead"}
    for unknown in ("nonsense", "<script>", ""):
        assert look_at(server.url, "tenants", "jobs", order=unknown)["order"] == "waiting"


def test_the_longest_wait_comes_first(server: Server, queue: Queue) -> None:
    write(queue, first=1)
    write(queue, many=9)
    found = look_at(server.url, "tenants", "jobs", order="oldest")
    assert set(names(found)) == {"first", "many"}
    ages = [row["oldest"] for row in found["rows"]]
    assert ages == sorted(ages, reverse=True)


def test_a_search_finds_all_that_have_it_in_their_names(server: Server, queue: Queue) -> None:
    queue.write_many([(b"x", f"tenant-{at:03}") for at in range(200)])
    queue.write_many([(b"x", "Needle-HAY")] * 2)
    found = look_at(server.url, "tenants", "jobs")
    assert (len(found["rows"]), found["total"], found["matching"], found["more"]) == (MAX_ROWS, 201, 201, 151)
    found = look_at(server.url, "tenants", "jobs", search="needle-hay")
    assert (names(found), found["matching"], found["total"]) == (["Needle-HAY"], 1, 201)
    found = look_at(server.url, "tenants", "jobs", search="19", order="oldest")
    assert (found["matching"], found["more"]) == (12, 0)
    assert {name[-2:] for name in names(found)} >= {"19"}
    found = look_at(server.url, "tenants", "jobs", search="\x00nobody" * 100)
    assert (found["rows"], found["matching"], len(found["search"])) == ([], 0, 200)


def test_hostile_names_are_names(server: Server, queue: Queue) -> None:
    for key in HOSTILE:
        queue.write(b"x", shard_key=key)
        queue.pause(key, by="<b>", note="</script>")
    tell(server, queue, dict.fromkeys(HOSTILE[:20], (1, 9.0)))
    found = look_at(server.url, "tenants", "jobs")
    assert found["total"] == len(HOSTILE)
    assert {key_of(row["key"]) for row in found["rows"]} | {None} >= set(HOSTILE[:20])
    for row in found["rows"]:
        assert row["name"].isprintable()
        assert row["name"].strip()
        assert len(row["name"]) <= 122
        assert row["waits"] == 1
        row["key"].encode()  # it can stand in an address


@pytest.mark.parametrize("key", HOSTILE)
def test_an_address_names_one_shard_key(key: str | bytes) -> None:
    address = address_of(key)
    assert key_of(address) == key
    assert address.encode().decode() == address
    assert set(args_of(key)) <= {"shard_key", "shard_key_base64"}


@pytest.mark.parametrize("address", ["", "x" * 1025, "\ud800"])
def test_an_address_that_names_none(address: str) -> None:
    with pytest.raises(NotThere, match="There is no tenant"):
        key_of(address)


def test_a_queue_without_a_window_knows_no_tenants(server: Server, client: Client) -> None:
    client.queue("open", window=0).declare()
    with pytest.raises(NotThere, match=r"open has no window, so it does not know its tenants: configure window=1\."):
        look_at(server.url, "tenants", "open")


def test_names_of_a_thousand_bytes_fit(server: Server, queue: Queue) -> None:
    keys = [f"{at:03}" + "\U0001f642" * 255 for at in range(60)]
    queue.write_many([(b"x", key) for key in keys])
    found = look_at(server.url, "tenants", "jobs")  # it checks the size
    assert found["rows"]
    assert len(found["rows"]) + found["more"] == 60


def test_all_who_look_share_one_survey(server: Server, queue: Queue) -> None:
    """A hundred viewers with different orders and searches read the accounts once."""
    queue.write_many([(b"x", f"tenant-{at}") for at in range(3000)])

    async def look() -> int:
        async with AsyncClient.from_url(server.url) as client:
            source = SceneSource(client)
            with server.client() as raw:
                raw.config_resetstat()
                queries = [{"order": order, "search": str(search)} for order in ORDERS for search in range(16)]
                asks = [AskedScene(("jobs",), query) for query in queries]
                for found in await asyncio.gather(*(tenants(source, asked) for asked in asks)):
                    read(found)
                stats: dict[str, Any] = raw.info("commandstats")
                return int(stats["cmdstat_hscan"]["calls"])

    assert asyncio.run(look()) <= 2 * 3  # pages of a thousand; a hash that grows tells some twice


@pytest.mark.runs_in("test-all")
def test_a_hundred_thousand_tenants(server: Server, queue: Queue) -> None:
    for at in range(0, 100_000, 1000):
        queue.write_many([(b"x", f"tenant-{number}") for number in range(at, at + 1000)])
    found = look_at(server.url, "tenants", "jobs", search="99999")
    assert (found["total"], found["matching"], names(found)) == (100_000, 1, ["tenant-99999"])
    found = look_at(server.url, "tenants", "jobs")
    assert (len(found["rows"]), found["more"]) == (MAX_ROWS, 100_000 - MAX_ROWS)
