"""The tests' own tools: servers that can be killed, replicas, sentinels, a cluster, the proxy, waiting."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.conftest import USUAL, as_usual
from tests.proxy import Proxy
from tests.servers import Cluster, Replicated, Sentinels, Server, ServerKind, available
from tests.waiting import eventually

KINDS = available()
each_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.product for kind in KINDS])


def plain(url: str, **settings: object) -> redis.Redis:
    """A client that does not retry, so that a test sees each fault."""
    retry = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    return redis.Redis.from_url(url, protocol=2, retry=retry, **({"socket_timeout": 30} | settings))


# --- one server --------------------------------------------------------------------------------------------------


def test_the_server_fixture_is_empty_and_reachable(server: Server, server_url: str, queue_name: str) -> None:
    assert server.run("DBSIZE") == 0
    with plain(server_url) as client:
        assert client.set(queue_name, 1)


def test_a_server_that_a_test_has_used_is_empty_again_and_has_its_settings_back(server: Server) -> None:
    server.run("SET", "left", "behind")
    other: dict[str, str | int] = {
        "hz": 100,
        "maxmemory": 2**30,
        "maxmemory-policy": "allkeys-lru",
        "min-replicas-to-write": 1,
    }
    assert other.keys() == USUAL.keys()
    for name, value in other.items():
        server.run("CONFIG", "SET", name, value)
    as_usual(server)
    assert server.run("DBSIZE") == 0
    with plain(server.url) as client:
        assert {name: client.config_get(name)[name] for name in USUAL} == {n: str(v) for n, v in USUAL.items()}


def test_a_suspended_server_keeps_connections_and_answers_after_resume(server: Server) -> None:
    with plain(server.url) as client, plain(server.url, socket_timeout=0.05) as hasty:
        client.set("key", "kept")
        server.pause()
        try:
            with pytest.raises(redis.TimeoutError):
                hasty.get("key")
        finally:
            server.resume()
        assert client.get("key") == b"kept"


def test_a_killed_server_is_gone_at_once_and_back_after_start(kind: ServerKind) -> None:
    with Server(kind) as server:
        url = server.url
        server.kill9()
        with pytest.raises(redis.ConnectionError):
            server.run("PING")
        assert server.start().url == url
        assert server.run("PING") in (b"PONG", True)


# --- groups ------------------------------------------------------------------------------------------------------


@each_kind
def test_replicas_have_what_the_primary_has_and_can_be_promoted(kind: ServerKind) -> None:
    with Replicated(kind, replicas=2) as group:
        group.primary.run("SET", "key", "1")
        group.wait_in_sync()
        assert [each.run("GET", "key") for each in group.replicas] == [b"1", b"1"]
        with pytest.raises(redis.ReadOnlyError):
            group.replicas[0].run("SET", "key", "2")
        old = group.primary
        group.promote(group.replicas[0])
        with pytest.raises(redis.ReadOnlyError):
            old.run("SET", "key", "2")
        assert group.primary.run("WAIT", 0, 0) == 2


@pytest.mark.runs_in("test-all")
@each_kind
def test_sentinels_replace_a_killed_primary(kind: ServerKind) -> None:
    with Replicated(kind) as group, Sentinels(group, kind) as sentinels:
        assert sentinels.primary_port() == group.primary.port
        assert len(set(sentinels.addresses)) == 3
        group.primary.kill9()
        eventually(lambda: sentinels.primary_port() == group.replicas[0].port, 40)


@pytest.mark.runs_in("test-all")
@each_kind
def test_a_cluster_serves_every_slot_when_it_has_started(kind: ServerKind) -> None:
    with Cluster(kind) as cluster:
        assert [cluster.owner(slot) for slot in (0, 5_460, 5_461, 10_921, 10_922, 16_383)] == [0, 0, 1, 1, 2, 2]
        with cluster.client() as client:
            for number in range(50):
                assert client.set(f"key{number}", number)
        keys = [node.run("DBSIZE") for node in cluster.nodes]
        assert sum(keys) == 50
        assert all(keys)
        cluster.flush()
        assert [node.run("DBSIZE") for node in cluster.nodes] == [0, 0, 0]


class Writer(threading.Thread):
    """Increments the keys in turn until stopped, and counts what was acknowledged."""

    def __init__(self, cluster: Cluster, keys: list[str]) -> None:
        super().__init__()
        self._cluster, self._keys = cluster, keys
        self._stop_now = threading.Event()
        self.counts = dict.fromkeys(keys, 0)
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with self._cluster.client() as client:
                while not self._stop_now.is_set():
                    for key in self._keys:
                        self.counts[key] = client.incr(key)
        except Exception as error:  # noqa: BLE001 (the test looks at it)
            self.error = error

    def __enter__(self) -> Writer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_now.set()
        self.join()


def test_a_slot_moves_live_while_a_writer_writes(cluster: Cluster) -> None:
    keys = [f"{{tenant}}{number}" for number in range(200)]
    slot = cluster.slot_of("{tenant}")
    assert {cluster.slot_of(key) for key in keys} == {slot}
    with Writer(cluster, keys) as writer:
        eventually(lambda: all(writer.counts.values()))
        home = cluster.owner(slot)
        seen: list[int] = []

        def between(moved: int) -> None:
            """Go on once the writer has written every key again, in the half moved slot."""
            seen.append(moved)
            before = dict(writer.counts)
            eventually(lambda: writer.error or all(writer.counts[key] > before[key] for key in keys))

        assert cluster.move_slot(slot, (home + 1) % 3, batch=50, between=between) == 200
        assert seen == [0, 50, 100, 150, 200]
        assert cluster.owner(slot) == (home + 1) % 3
        assert cluster.move_slot(slot, home) == 200
    assert writer.error is None
    with cluster.client() as client:
        assert {key: int(client.get(key) or 0) for key in keys} == writer.counts
    cluster.wait_ok()


def test_a_move_that_was_interrupted_can_be_ended(cluster: Cluster) -> None:
    slot = cluster.slot_of("{half}")
    home = cluster.owner(slot)
    with cluster.client() as client:
        for number in range(30):
            client.set(f"{{half}}{number}", number)

        def stop_half_way(moved: int) -> None:
            if moved:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            cluster.move_slot(slot, (home + 1) % 3, between=stop_half_way)
        assert cluster.owner(slot) == home
        assert client.get("{half}29") == b"29"  # mixed: here or there
        assert cluster.move_slot(slot, (home + 1) % 3) == 20
        assert [client.get(f"{{half}}{number}") for number in range(30)] == [b"%d" % number for number in range(30)]


def test_moving_a_slot_to_where_it_is_does_nothing(cluster: Cluster) -> None:
    assert cluster.move_slot(7, cluster.owner(7)) == 0


# --- the proxy ---------------------------------------------------------------------------------------------------


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.url) as proxy:
        yield proxy


def test_the_proxy_passes_everything_on(proxy: Proxy, server: Server) -> None:
    body = bytes(range(256)) * 5_000
    with plain(proxy.url) as client:
        client.set("big", body)
        assert client.get("big") == body
        with client.pipeline(transaction=False) as pipe:
            for number in range(1_000):
                pipe.rpush("list", number)
            assert pipe.execute() == list(range(1, 1_001))
    assert proxy.accepted == 1
    assert server.run("LLEN", "list") == 1_000


def test_the_proxy_reaches_a_server_on_tcp_too(kind: ServerKind) -> None:
    with Server(kind, port=0) as server, Proxy(server.url) as proxy, plain(proxy.url) as client:
        assert client.ping()


def test_a_cut_after_a_request_loses_its_reply_but_not_its_effect(proxy: Proxy, server: Server) -> None:
    cut = proxy.cut_after_request(b"RPUSH")
    with plain(proxy.url) as client:
        client.set("other", 1)
        with pytest.raises(redis.ConnectionError):
            client.rpush("list", "a")
        assert cut.struck.wait(30)
        assert server.run("LRANGE", "list", 0, -1) == [b"a"]
        assert client.rpush("list", "b") == 2  # once only


def test_a_cut_before_a_request_loses_the_request(proxy: Proxy, server: Server) -> None:
    proxy.cut_before_request(b"RPUSH")
    with plain(proxy.url) as client:
        with pytest.raises(redis.ConnectionError):
            client.rpush("list", "a")
        assert server.run("EXISTS", "list") == 0
        assert client.rpush("list", "b") == 1


def test_a_cut_inside_a_pipeline_delivers_what_came_before_it(proxy: Proxy, server: Server) -> None:
    cut = proxy.cut_after_request(b"RPUSH", skip=2)
    with plain(proxy.url) as client, client.pipeline(transaction=False) as pipe:
        for value in "abcd":
            pipe.rpush("list", value)
        with pytest.raises(redis.ConnectionError):
            pipe.execute()
    assert cut.struck.wait(30)
    assert server.run("LRANGE", "list", 0, -1) == [b"a", b"b", b"c"]


def test_a_black_hole_swallows_nothing_and_heals(proxy: Proxy, server: Server) -> None:
    with plain(proxy.url, socket_timeout=None) as client, plain(proxy.url, socket_timeout=0.05) as hasty:
        client.set("key", 1)
        proxy.blackhole()
        with pytest.raises(redis.TimeoutError):
            hasty.get("key")
        answers: list[object] = []
        waiting = threading.Thread(target=lambda: answers.append(client.incr("key")))
        waiting.start()
        assert server.run("GET", "key") == b"1"
        assert not answers
        proxy.heal()
        waiting.join(30)
        assert answers == [2]


def test_a_delay_holds_replies_back_until_it_is_healed(proxy: Proxy) -> None:
    with plain(proxy.url) as client, plain(proxy.url, socket_timeout=0.05) as hasty:
        assert client.ping()
        proxy.delay(0.2)
        start = time.monotonic()
        client.ping()
        assert time.monotonic() - start >= 0.2
        proxy.delay(600)
        with pytest.raises(redis.TimeoutError):
            hasty.ping()
        proxy.heal()
        assert client.ping()


def test_dropped_connections_are_seen_at_once_and_new_ones_work(proxy: Proxy) -> None:
    with plain(proxy.url, socket_timeout=None) as client:
        failures: list[Exception] = []

        def blocked() -> None:
            try:
                client.blpop(["nothing"], timeout=0)
            except redis.ConnectionError as error:
                failures.append(error)

        thread = threading.Thread(target=blocked)
        thread.start()
        with plain(proxy.url) as other:
            eventually(lambda: other.info("clients")["blocked_clients"] == 1)
        proxy.drop()
        thread.join(30)
        assert len(failures) == 1
        assert client.ping()


def test_behind_the_proxy_a_dead_server_looks_dead(kind: ServerKind) -> None:
    with Server(kind) as server, Proxy(server.url) as proxy, plain(proxy.url) as client:
        assert client.ping()
        server.kill9()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        server.start()
        assert client.ping()


# --- waiting and seeds -------------------------------------------------------------------------------------------


def test_eventually_returns_what_became_true_and_says_what_did_not() -> None:
    answers = iter([0, None, "yes"])
    assert eventually(lambda: next(answers)) == "yes"
    with pytest.raises(AssertionError, match=r"the sky fell did not hold within 0\.01 s, last: False"):
        eventually(lambda: False, 0.01, what="the sky fell")


@pytest.mark.runs_in("test-all")
def test_a_failing_test_shows_the_seed_that_repeats_it(tmp_path: Path) -> None:
    """The run inside has settings of its own: with others, its root would be above the folders of all tests."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "pytest.ini").write_text("[pytest]\n")
    (own / "conftest.py").write_text("from tests.conftest import *\n")
    (own / "test_it.py").write_text("def test_it(seed): assert not seed\n")
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-c", str(own / "pytest.ini"), "-p", "no:cacheprovider", str(own)]
    command += [f"--basetemp={tmp_path / 'run'}"]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = outside | {"SHARDQ_SEED": "4711", "PYTHONPATH": str(root)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root)
    shown = re.search(r"seed (\d+); SHARDQ_SEED=4711 repeats it", run.stdout)
    assert shown, run.stdout + run.stderr
    assert f"assert not {shown[1]}" in run.stdout, run.stdout


def test_a_queue_name_is_valid_and_the_tests_own(queue_name: str) -> None:
    assert re.fullmatch(r"test_a_queue_name_is_valid_and_the_tests_own\.[0-9a-f]{8}", queue_name)
