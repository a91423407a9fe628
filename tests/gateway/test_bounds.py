"""The FIFO, the rates, the tokens and the dictionaries, each by itself."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path
from random import Random

import pytest
from backports import zstd

from shardq import ConfigError
from shardq.bearer import fresh_token
from shardq.clock import Clock, SystemClock
from shardq.datasink.frames import BadFrame
from shardq.gateway.bucket import TokenBucket
from shardq.gateway.dictionaries import MAX_DICTIONARY_BYTES, Dictionaries
from shardq.gateway.rates import Rates
from shardq.gateway.received import Envelope, Fifo, Incoming
from shardq.gateway.settings import GatewaySettings
from shardq.gateway.strangers import MAX_ADDRESSES, Strangers, name_of
from shardq.gateway.tokens import UNCHECKED, Patterns, Token, Tokens
from shardq.testing import ManualClock

EVERYBODY = Patterns.of(["*"])


def message(number: int, size: int = 10) -> Incoming:
    return Incoming(b"%d" % number, Envelope("q", "", b"t", "b", {}, 0), bytes(size), False, size, False)


def received(fifo: Fifo, incoming: Incoming) -> list[Incoming]:
    return fifo.received(incoming, incoming.weight)


def test_a_full_fifo_drops_the_oldest() -> None:
    fifo = Fifo(3, 1 << 20)
    dropped = [each.message_id for number in range(5) for each in received(fifo, message(number))]
    assert dropped == [b"0", b"1"]
    assert [each.message_id for each in fifo.batch(9, 1 << 20)] == [b"2", b"3", b"4"]
    assert (len(fifo), fifo.bytes, fifo.batch(9, 1 << 20)) == (0, 0, [])


def test_a_fifo_is_bounded_by_bytes_but_takes_one_message_of_any_size() -> None:
    fifo = Fifo(100, 5000)
    assert not received(fifo, message(0, 1000))
    assert not received(fifo, message(1, 1000))
    assert [each.message_id for each in received(fifo, message(2, 4000))] == [b"0", b"1"]
    assert [each.message_id for each in received(fifo, message(3, 9000))] == [b"2"]
    assert [each.message_id for each in fifo.batch(1, 1)] == [b"3"]


def test_a_fifo_keeps_order_and_its_bounds_whatever_comes(rng: Random) -> None:
    fifo, number, out = Fifo(20, 20_000), 0, list[int]()
    for _ in range(3000):
        if rng.random() < 0.6:
            out += [int(each.message_id) for each in received(fifo, message(number, rng.randrange(3000)))]
            number += 1
        else:
            out += [int(each.message_id) for each in fifo.batch(rng.randint(1, 5), rng.randrange(5000))]
        assert len(fifo) <= 20
        assert fifo.bytes <= 20_000
    assert out == list(range(len(out)))
    assert len(out) + len(fifo) == number


def test_a_batch_is_bounded_by_the_decompressed_size() -> None:
    fifo = Fifo(100, 1 << 20)
    for number in range(4):
        received(fifo, message(number, 1000))
    assert [len(fifo.batch(9, 2500)) for _ in range(2)] == [2, 2]
    received(fifo, message(9, 5000))
    assert len(fifo.batch(9, 100)) == 1


def test_a_bucket_lets_a_burst_through_and_then_its_rate() -> None:
    clock = ManualClock()
    bucket = TokenBucket(100, 10, clock)
    assert [bucket.take(60), bucket.take(60), bucket.take(40), bucket.take()] == [True, False, True, False]
    clock.advance(2)
    assert bucket.left == 20
    clock.advance(1000)
    assert bucket.left == 100
    bucket.take(-50)
    assert bucket.left == 100


def test_what_is_owed_to_a_bucket_is_paid_in_time() -> None:
    clock = ManualClock()
    bucket = TokenBucket(100, 10, clock)
    bucket.owe(125)
    assert (bucket.left, bucket.debt) == (-25, 2.5)
    clock.advance(1)
    bucket.owe(5)
    assert bucket.debt == 2.0
    clock.advance(2)
    assert (bucket.debt, bucket.take()) == (0.0, False)
    bucket.owe(1000, within=3)
    assert bucket.debt == 3.0
    bucket.owe(10)
    bucket.owe(10, within=3)
    assert bucket.debt == 4.0


def rates(clock: Clock, messages: int, size: int) -> Rates:
    token = Token("t", (), EVERYBODY, EVERYBODY, EVERYBODY, messages_per_second=messages, bytes_per_second=size)
    return Rates(token, GatewaySettings("127.0.0.1:0", insecure=True), clock)


def test_rates_hold_back_what_exceeds_a_second_of_messages_or_of_bytes() -> None:
    clock = ManualClock()
    few, small, worked, free = rates(clock, 10, 0), rates(clock, 0, 1000), rates(clock, 10, 0), rates(clock, 0, 0)
    assert [few.take(10**9) for _ in range(11)] == [True] * 10 + [False]
    assert [small.take(400) for _ in range(3)] == [True, True, False]
    worked.charge(10)
    assert not worked.take(1)
    assert all(free.take(10**9) for _ in range(1000))


async def test_readers_that_were_held_back_go_on_one_after_the_other_when_all_is_paid() -> None:
    clock, order = SystemClock(), list[tuple[int, float]]()
    limited = rates(clock, 100, 0)
    limited.charge(110)

    async def read(number: int) -> None:
        await limited.wait()
        order.append((number, clock.monotonic()))
        limited.charge(10)

    begun = clock.monotonic()
    gone = asyncio.create_task(limited.wait())
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(*map(read, range(3)))
    assert [number for number, _ in order] == [0, 1, 2]
    assert all(at - begun >= 0.1 * (number + 1) - 0.02 for number, at in order)


def test_patterns_are_exact_or_prefixes() -> None:
    patterns = Patterns.of(["jobs", "site-7/*", "a*"])
    names = [b"jobs", b"jobs2", b"site-7/x", b"site-7", b"a", b"", b"site-7/"]
    assert [name for name in names if patterns.allow(name)] == [
        b"jobs", b"site-7/x", b"a", b"site-7/",
    ]  # fmt: skip
    assert not Patterns.of([]).allow(b"")


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["[[tokens]]", *lines]))
    return path


def test_a_token_is_found_by_its_text_only(tmp_path: Path) -> None:
    (first, first_hash), (second, second_hash) = fresh_token(), fresh_token()
    file = write(tmp_path / "t", 'name = "a"', f'sha256 = ["{first_hash}", "{second_hash}"]', 'queues = ["*"]')
    tokens = Tokens.read(file)
    for secret in (first, second):
        found = tokens.find(secret)
        assert found is not None
        assert found.name == "a"
    for wrong in ("", first[:-1], first + "x", first_hash, "x" * 100_000):
        assert tokens.find(wrong) is None
    token = tokens.by_name["a"]
    assert not token.topics.allow(b"x"), "what is not named is not allowed"
    assert not token.shard_keys.allow(b"x")


HASH = 'sha256 = "' + "0" * 64 + '"'


@pytest.mark.parametrize(
    "lines",
    [
        ['name = "a"'], [HASH], ['name = "a b"', HASH], ['name = "a"', 'sha256 = "00"'], ['name = "a"', HASH, "x = 1"],
        ['name = "a"', HASH, 'queues = "*"'], ['name = "a"', HASH, 'queues = ["a*b"]'], ['name = "a"', 'sha256 = []'],
        ['name = "a"', HASH, "capacity = 0"], ['name = "a"', HASH, "[[tokens]]", 'name = "a"', HASH.replace("0", "1")],
        ['name = "a"', HASH, "[[tokens]]", 'name = "b"', HASH], ["name ="], ['name = "a"', HASH, "[other]"],
        ['name = "a"', HASH, 'expires = "2027-01-31T00:00:00Z"'], ['name = "a"', HASH, "expires = 2027-01-31T00:00:00"],
        ['name = "a"', HASH, "expires = 2027-01-31"], ['name = "a"', HASH, "expires = 1"],
        ['name = "a"', HASH, "certificate_sha256 = 1"], ['name = "a"', HASH, "certificate_sha256 = []"],
        ['name = "a"', HASH, 'certificate_sha256 = ["ab"]'], ['name = "a"', HASH, "certificate_sha256 = [1]"],
        ['name = "a"', HASH, "certificates = []"], ['name = "a"', HASH, 'continues_traces = "yes"'],
    ],
)  # fmt: skip
def test_a_bad_file_of_tokens_is_a_clear_error(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(ConfigError):
        Tokens.read(write(tmp_path / "t", *lines))


def test_a_missing_file_of_tokens_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokens.read(tmp_path / "none")


@pytest.mark.parametrize(
    "settings",
    [
        {"listen": "127.0.0.1:0"}, {"listen": "0.0.0.0:0", "insecure": True}, {"listen": "nowhere"},
        {"listen": "0.0.0.0:0", "tokens": Path("t")}, {"listen": "example.org:1", "tokens": Path("t")},
        {"listen": "127.0.0.1:0", "tokens": Path("t"), "tls_cert": Path("c")},
        {"listen": "127.0.0.1:0", "tokens": Path("t"), "client_ca": Path("c")},
        {"listen": "127.0.0.1:0", "insecure": True, "capacity": 0},
        {"listen": "127.0.0.1:0", "insecure": True, "health": "0.0.0.0:0"},
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_would_serve_strangers_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        GatewaySettings(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:1", "[::1]:0", "unix:/tmp/x"])
def test_loopback_needs_no_tls(listen: str) -> None:
    assert GatewaySettings(listen, insecure=True).is_local
    assert GatewaySettings(listen, tokens=Path("t")).is_local
    assert UNCHECKED.queues.allow(b"any")


def dictionary(seed: int, size: int = 2048) -> tuple[int, bytes]:
    rng = Random(seed)
    made = zstd.train_dict([b"%d-%s" % (n, rng.randbytes(3).hex().encode() * 5) for n in range(500)], size)
    return made.dict_id, made.dict_content


def test_a_dictionary_belongs_to_a_name() -> None:
    cache = Dictionaries()
    number, content = dictionary(1)
    mine = cache.keep("a", number, content)
    assert cache.find("a", number) is mine
    assert cache.find("b", number) is None
    assert cache.keep("b", number, content) is mine, "equal contents are kept once"
    assert cache.size == len(content)
    _, other = dictionary(2)
    other = other[:4] + number.to_bytes(4, "little") + other[8:]
    assert cache.keep("b", number, other) is not mine
    assert cache.find("a", number) is mine


def test_dictionaries_are_bounded_by_bytes() -> None:
    made = [dictionary(seed) for seed in range(6)]
    cache = Dictionaries(sum(len(content) for _, content in made[:3]) + 100)
    for number, content in made:
        cache.keep("a", number, content)
    assert [cache.find("a", number) is not None for number, _ in made] == [False] * 3 + [True] * 3
    assert cache.size == sum(len(content) for _, content in made[3:])


def test_a_token_with_many_dictionaries_loses_its_own() -> None:
    made = [dictionary(seed) for seed in range(6)]
    cache = Dictionaries(sum(len(content) for _, content in made[:3]) + 100)
    cache.keep("quiet", *made[0])
    for number, content in made[1:]:
        cache.keep("flood", number, content)
    assert cache.find("quiet", made[0][0]) is not None
    assert [cache.find("flood", number) is not None for number, _ in made[1:]] == [False] * 3 + [True] * 2


def test_what_is_no_dictionary_is_refused() -> None:
    number, content = dictionary(1)
    for bad in (b"", b"x" * 1000, content + bytes(MAX_DICTIONARY_BYTES)):
        with pytest.raises(BadFrame):
            Dictionaries().keep("a", number, bad)
    cache = Dictionaries()
    cache.keep("a", number, content)
    with pytest.raises(BadFrame):
        cache.keep("a", number + 1, content)


def test_addresses_are_forgotten_but_not_those_with_connections() -> None:
    strangers = Strangers(10, ManualClock())
    kept = strangers.address("kept")
    kept.connections = 1
    for number in range(2 * MAX_ADDRESSES):
        strangers.address(f"address {number}")
    assert len(strangers.by_name) == MAX_ADDRESSES
    assert strangers.address("kept") is kept
    assert f"address {2 * MAX_ADDRESSES - 1}" in strangers.by_name


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("203.0.113.5", "203.0.113.5"), ("::ffff:203.0.113.5", "203.0.113.5"), ("2001:db8::1:2", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"), ("", "local"),
    ],
)  # fmt: skip
def test_a_customer_of_ipv6_is_one_address(host: str, name: str) -> None:
    assert name_of(host) == name


@pytest.mark.parametrize(("count", "size"), [(0, 0), (1, 100), (64, 1), (64, 100)])
def test_a_message_takes_no_more_memory_than_its_weight(count: int, size: int) -> None:
    tracemalloc.start()
    made = [
        Incoming(
            b"id-%d" % number,
            Envelope("q", "", b"%d" % number, "b", {f"{at:03}": f"{number:0{size}}" for at in range(count)}, 0),
            b"x" * number, False, number, False,
        )
        for number in range(300)
    ]  # fmt: skip
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken <= sum(each.weight for each in made)
