"""URLs taken apart; a password is in no error and in no text."""

from __future__ import annotations

from typing import Any

import pytest

from shardq import AsyncClient, Client
from shardq.drivers import Target
from shardq.errors import ConfigError

SECRET = "hunter2"


def test_one_server() -> None:
    target = Target.parse(f"redis://user:{SECRET}@host:1234/2?socket_timeout=3")
    assert (target.kind, target.tls) == ("single", False)
    assert target.settings == {
        "host": "host", "port": 1234, "db": 2, "username": "user", "password": SECRET, "socket_timeout": 3.0,
    }  # fmt: skip
    assert Target.parse("rediss://host").tls
    assert Target.parse("unix:///run/redis.sock?db=1").settings == {"path": "/run/redis.sock", "db": 1}


def test_valkeys_schemes_mean_what_those_of_redis_do() -> None:
    for valkey, redis in (("valkey", "redis"), ("valkeys", "rediss")):
        for rest in ("://user:a@h:7/2?socket_timeout=3", "+cluster://a,b:7", "+sentinel://a/name/2"):
            assert Target.parse(valkey + rest) == Target.parse(redis + rest)


@pytest.mark.parametrize("url", ["redis://h", "redis+cluster://a,b", "redis+sentinel://a/name", "unix:///s"])
def test_a_url_may_say_how_many_connections_a_client_has(url: str) -> None:
    told = Target.parse(f"{url}?max_connections=7")
    assert (told.max_connections, Target.parse(url).max_connections) == (7, 32)
    assert told.settings == Target.parse(url).settings
    assert Client(told).max_connections == AsyncClient(told).max_connections == 7
    assert Client(told, max_connections=3).max_connections == 3


def test_a_cluster_has_several_seeds_and_one_database() -> None:
    target = Target.parse(f"rediss+cluster://user:{SECRET}@a,b:7001,[::1]:7002?ssl_cert_reqs=none")
    assert target.addresses == (("a", 6379), ("b", 7001), ("::1", 7002))
    assert (target.kind, target.settings["password"], "db" in target.settings) == ("cluster", SECRET, False)
    assert Target.parse("rediss+cluster://a").tls


@pytest.mark.parametrize("credentials", ["", f"user:{SECRET}@", f":{SECRET}@", f"us%40er:{SECRET}%2F@"])
@pytest.mark.parametrize(("hosts", "addresses"), [
    ("[::1]:7000", (("::1", 7000),)),
    ("[::1]", (("::1", 6379),)),
    ("[::1]:7000,a,[fe80::1]", (("::1", 7000), ("a", 6379), ("fe80::1", 6379))),
    ("a,b:7001,[::1]:7002", (("a", 6379), ("b", 7001), ("::1", 7002))),
    ("[::1]:7000,[::1]:7001", (("::1", 7000), ("::1", 7001))),
])  # fmt: skip
def test_seeds_and_sentinels_may_be_ipv6_addresses_in_any_place(
    credentials: str, hosts: str, addresses: tuple[tuple[str, int], ...]
) -> None:
    seeds = Target.parse(f"redis+cluster://{credentials}{hosts}")
    assert (seeds.kind, seeds.addresses, "host" in seeds.settings) == ("cluster", addresses, False)
    assert Target.parse(f"redis+cluster://{credentials}{hosts}?socket_timeout=3").settings["socket_timeout"] == 3
    sentinels = Target.parse(f"redis+sentinel://{credentials}{hosts}/name/2")
    assert (sentinels.service, sentinels.settings["db"]) == ("name", 2)
    assert sentinels.addresses == tuple((host, 26379 if port == 6379 else port) for host, port in addresses)
    passwords = [target.settings.get("password", "") for target in (seeds, sentinels)]
    assert passwords == ["" if not credentials else f"{SECRET}/" if "%2F" in credentials else SECRET] * 2


def test_sentinels_name_a_service() -> None:
    target = Target.parse(f"redis+sentinel://us%40er:{SECRET}%2F@a:1,b/my%20primary/3")
    assert target.addresses == (("a", 1), ("b", 26379))
    assert target.service == "my primary"
    assert {name: target.settings[name] for name in ("username", "password", "db")} == {
        "username": "us@er", "password": f"{SECRET}/", "db": 3,
    }  # fmt: skip
    secure = Target.parse("rediss+sentinel://a/name?ssl_ca_certs=ca.pem")
    assert (secure.tls, secure.settings) == (True, {"ssl_ca_certs": "ca.pem"})


def test_an_embedded_server_may_have_a_directory() -> None:
    assert Target.parse("shardq://embedded").settings == {}
    assert Target.parse("shardq://embedded?directory=jobs.d").settings == {"directory": "jobs.d"}


BAD = [
    f"http://user:{SECRET}@host",
    f"user:{SECRET}@host:6379",
    f"redis://user:{SECRET}@host:port",
    f"redis://user:{SECRET}@host:99999",
    f"redis://user:{SECRET}@host?socket_timeout=soon",
    f"redis+cluster://user:{SECRET}@host:port",
    f"redis+cluster://user:{SECRET}@",
    f"redis+cluster://user:{SECRET}@a,,b",
    f"redis+cluster://user:{SECRET}@host?socket_timeout=soon",
    f"redis+sentinel://user:{SECRET}@host",
    f"redis+sentinel://user:{SECRET}@host:port/name",
    f"redis://:{SECRET}/rest@host",  # a / that should be %2F: what stands before it looks like a port
    f"redis://:{SECRET}#rest@host",
    f"redis://user:{SECRET}@host/name",
    f"redis://user:{SECRET}@host?colour=red",
    f"redis://user:{SECRET}@host?max_connections=many",
    f"valkey+unix://user:{SECRET}@host",
    f"unix:///run/redis.sock?password={SECRET}&colour=red",
    f"redis+sentinel://user:{SECRET}@host/name/database",
    f"redis+sentinel://user:{SECRET}@host/name?colour=red",
    f"redis://user:{SECRET}@[::1",
    f"redis+cluster://user:{SECRET}@a,[::1",
    f"redis+cluster://user:{SECRET}@::1",
    f"redis+cluster://user:{SECRET}@[a]:7000",
    f"redis+cluster://user:{SECRET}@a,::1]:7000",
    f"redis+cluster://user:{SECRET}@a:70000",
    f"redis+sentinel://user:{SECRET}@a,[::1/name",
    f"shardq://user:{SECRET}@embedded",
    "shardq://embedded/jobs.d",
    "shardq://embedded?directory=",
    f"shardq://embedded?password={SECRET}",
    f"{SECRET}://host",
    SECRET,
    "",
]


@pytest.mark.parametrize("url", [*BAD, None, 7, b"redis://host"], ids=str)
def test_a_bad_url_is_refused_without_showing_its_password(url: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Target.parse(url)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_no_text_of_a_target_shows_its_password() -> None:
    for url in (f"redis://:{SECRET}@host", f"redis+sentinel://:{SECRET}@a/name", f"redis+cluster://:{SECRET}@a"):
        assert SECRET not in repr(Target.parse(url)) + str(Target.parse(url))
    assert str(Target.parse(f"redis+sentinel://:{SECRET}@a,b:1/name")) == "a:26379,b:1/name"
    assert [str(Target.parse(url)) for url in ("redis://h/3", "unix:///s", "shardq://embedded")] == [
        "h:6379", "/s", "embedded",
    ]  # fmt: skip
