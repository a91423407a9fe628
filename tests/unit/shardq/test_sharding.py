"""Sharding: the same everywhere, uniform, few moves, and the odds it claims."""

from __future__ import annotations

import json
import os
import re
import runpy
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations
from math import comb, sqrt
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardq import sharding
from shardq.errors import ConfigError
from shardq.sharding import MAX_SHARD_KEY, MAX_STREAMS, Odds, overlap, shard

ROOT = Path(__file__).parents[3]
GOLDEN: list[dict[str, Any]] = json.loads((ROOT / "tests/golden/sharding.json").read_text())
DOC = (ROOT / "docs/internals/sharding.md").read_text()

keys = st.one_of(st.binary(min_size=1, max_size=64), st.text(st.characters(codec="utf-8"), min_size=1, max_size=64))


def tenants(count: int) -> Iterable[str]:
    """Fixed keys, so that the statistical tests always see the same numbers."""
    return (f"tenant-{i}" for i in range(count))


def deviations(observed: Iterable[int], expected: float, *, scale: float = 1.0) -> float:
    """How many standard deviations the chi-square statistic lies from its mean, its degrees of freedom.

    `scale` corrects for drawing without replacement. With k cells the statistic has mean k - 1 and variance 2 (k - 1).
    """
    cells = list(observed)
    freedom = len(cells) - 1
    statistic = scale * sum((count - expected) ** 2 for count in cells) / expected
    return (statistic - freedom) / sqrt(2 * freedom)


# A chi-square with 60 or more degrees of freedom goes 4.5 deviations off less than once in 10,000 sets of keys. The
# keys are fixed, so the outcome is too.
LIMIT = 4.5


# --- the same everywhere


@pytest.mark.parametrize("vector", GOLDEN, ids=lambda v: f"{v['key'][:12]}-{v['streams']}-{v['streams_per_shard']}")
def test_golden_vectors(vector: dict[str, Any]) -> None:
    """A shard is what the golden vectors say; they never change within version 1."""
    dealt = shard(bytes.fromhex(vector["key"]), vector["streams"], vector["streams_per_shard"])

    assert tuple(vector["shard"]) == dealt


@pytest.mark.runs_in("test-all")
def test_golden_file_is_what_the_independent_implementation_writes() -> None:
    """The golden file comes from an implementation that shares nothing with shardq, its Keccak included."""
    made = runpy.run_path(str(ROOT / "tests/golden/make_sharding.py"))["vectors"]()

    assert made == GOLDEN


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_processes_agree(seed: str) -> None:
    """Another process with another PYTHONHASHSEED deals the same shards."""
    code = "from shardq.sharding import shard; print([shard(f'tenant-{i}', 64, 4) for i in range(50)])"
    env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    other = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)

    assert str([shard(key, 64, 4) for key in tenants(50)]) == other.stdout.strip()


def test_documented_example() -> None:
    """The worked example of docs/internals/sharding.md shows the real bytes, ranks and shard."""
    rows = re.findall(r"\| (\d) \| `([0-9a-f]{16})` \| (\d) \|", DOC)
    ranking = shard("tenant-42", 8, 8)

    assert b"".join(bytes.fromhex(score) for _, score, _ in rows) == sharding.raw_scores(b"tenant-42", 8)
    assert [ranking.index(int(stream)) + 1 for stream, _, _ in rows] == [int(rank) for _, _, rank in rows]
    assert f"The shard is {shard('tenant-42', 8, 3)}." in DOC
    assert (b"shardq/1\0" + b"tenant-42").hex() in DOC


def test_documented_odds() -> None:
    """The tables of odds in docs/internals/sharding.md are what Odds computes."""
    for n, m in ((16, 2), (64, 4), (64, 6), (256, 4)):
        odds = Odds(n, m)
        shares = [*odds.overlap[:4], sum(odds.overlap[4:])] if m >= 4 else [*odds.overlap, None, None]
        cells = [" " if share is None else f" {share:.4%} ".replace("%", " %") for share in shares]
        blocked = " | ".join(f"{odds.blocked(noisy):.2e}" for noisy in (1, 4, 20))

        assert f"| {n}, {m} | {odds.shards:,} |{'|'.join(cells)}| {odds.full:.2e} |" in DOC
        assert f"| {n}, {m} | {blocked} |" in DOC


def test_documented_sizes() -> None:
    """The three sizes of docs/planning.md have the shares that Odds computes, to the digits that stand there."""
    rows = re.findall(
        r"^\| (\d+), (\d).*? \|((?: [0-9.]+ % \|){3})", (ROOT / "docs/planning.md").read_text(), re.MULTILINE
    )
    assert [(n, m) for n, m, _ in rows] == [("16", "2"), ("64", "4"), ("256", "4")]
    for n, m, cells in rows:
        shown = re.findall(r"([0-9.]+) %", cells)
        digits = [len(each.partition(".")[2]) for each in shown]
        shares = [100 * Odds(int(n), int(m)).blocked(floods) for floods in (1, 4, 20)]
        assert shown == [f"{share:.{count}f}" for share, count in zip(shares, digits, strict=True)]


# --- what a shard is


@pytest.mark.runs_in("test-all")
def test_every_number_of_streams() -> None:
    """For every N from 1 to 4,096, a shard is M distinct streams of 0 to N-1, and M more than N means N."""
    for n in range(1, MAX_STREAMS + 1):
        for key, m in (("tenant-1", 2), (b"\xff\x00", 7)):
            dealt = shard(key, n, m)
            assert len(set(dealt)) == len(dealt) == min(n, m)
            assert min(dealt) >= 0
            assert max(dealt) < n


@given(keys, st.integers(1, 200), st.integers(1, 250))
def test_shard_is_a_hand_of_distinct_streams(key: str | bytes, n: int, m: int) -> None:
    """Any key is dealt min(M, N) distinct streams in range, the same again when asked again."""
    dealt = shard(key, n, m)

    assert min(n, m) == len(set(dealt)) == len(dealt)
    assert all(0 <= stream < n for stream in dealt)
    assert dealt == shard(key, n, m) == sharding._deal(sharding.key_bytes(key), n, min(n, m))


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=64), st.integers(1, 200), st.integers(1, 20))
def test_text_is_its_utf8(key: str, n: int, m: int) -> None:
    """A str key gets the shard of its UTF-8 bytes."""
    assert shard(key.encode(), n, m) == shard(key, n, m)


@given(keys, st.integers(1, 100), st.integers(1, 100))
def test_smaller_shard_is_the_front_of_a_larger_one(key: str | bytes, n: int, m: int) -> None:
    """The order of a shard does not depend on M: a shard of M is the front of a shard of M + 1."""
    assert shard(key, n, m) == shard(key, n, m + 1)[:m]


def test_ties_go_to_the_lower_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two equal scores, the lower stream number wins."""
    monkeypatch.setattr(sharding, "raw_scores", lambda key, streams: struct.pack(">5Q", 5, 9, 5, 9, 9))

    assert sharding._deal(b"k", 5, 2) == (1, 3)
    assert sharding._deal(b"k", 5, 4) == (1, 3, 4, 0)


def test_a_shard_has_the_highest_scores_also_if_few_streams_have_a_high_first_byte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Streams are sorted only from a first byte on which enough of them have; here most have a low one."""
    rng = Random(7)
    for most in (1, 20, 255):
        for streams, width in ((8, 8), (64, 6), (300, 40), (4096, 3)):
            scores = [rng.randint(0, most) << 56 | rng.randint(0, 3) for _ in range(streams)]
            monkeypatch.setattr(
                sharding, "raw_scores", lambda *_, scores=scores: struct.pack(f">{len(scores)}Q", *scores)
            )
            ranking = sorted(range(streams), key=lambda stream: (-scores[stream], stream))
            assert sharding._deal(b"k", streams, width) == tuple(ranking[:width])


# --- uniform


def test_streams_are_uniform() -> None:
    """Every stream is dealt to equally many keys (chi-square over 64 streams)."""
    n, m, count = 64, 4, 20_000
    seen = Counter(stream for key in tenants(count) for stream in shard(key, n, m))

    assert abs(deviations((seen[i] for i in range(n)), count * m / n, scale=(n - 1) / (n - m))) < LIMIT


def test_each_place_of_the_hand_is_uniform() -> None:
    """Every stream comes first, second, … equally often."""
    n, m, count = 64, 4, 20_000
    shards = [shard(key, n, m) for key in tenants(count)]
    for place in range(m):
        seen = Counter(streams[place] for streams in shards)
        assert abs(deviations((seen[i] for i in range(n)), count / n)) < LIMIT


def test_pairs_are_uniform() -> None:
    """Every one of the 120 shards of 2 of 16 streams is dealt equally often."""
    count = 24_000
    seen = Counter(tuple(sorted(shard(key, 16, 2))) for key in tenants(count))

    assert abs(deviations((seen[pair] for pair in combinations(range(16), 2)), count / 120)) < LIMIT


# --- few moves


@pytest.mark.parametrize(("n", "m"), [(16, 2), (64, 4), (255, 4)])
def test_growing_moves_few_keys_by_one_stream(n: int, m: int) -> None:
    """Adding a stream changes the shards of M/(N+1) of the keys, each by swapping its last stream for the new one."""
    count, moved = 10_000, 0
    for key in tenants(count):
        before, after = shard(key, n, m), shard(key, n + 1, m)
        if before != after:
            moved += 1
            assert set(after) - set(before) == {n}
            assert [stream for stream in after if stream != n] == list(before[:-1])
    share = m / (n + 1)

    assert abs(moved / count - share) < 4 * sqrt(share * (1 - share) / count)  # 4 deviations of a binomial


@given(keys, st.integers(1, 100), st.integers(1, 100), st.integers(1, 20))
def test_order_of_streams_that_stay_is_kept(key: str | bytes, n: int, more: int, m: int) -> None:
    """However far N grows, the old streams that stay in a shard are the front of the old shard."""
    after = [stream for stream in shard(key, n + more, m) if stream < n]

    assert list(shard(key, n, m)[: len(after)]) == after


# --- overlap


def test_overlap_counts_shared_streams() -> None:
    """overlap is the number of streams in both shards, whatever their order."""
    assert overlap((3, 1, 2), (2, 5, 3)) == 2
    assert overlap((1,), (2,)) == 0


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(("n", "m"), [(16, 2), (64, 4), (12, 3)])
def test_observed_overlap_is_hypergeometric(n: int, m: int) -> None:
    """Pairs of keys share j streams as often as is hypergeometric, all M in 1 / C(N, M) of the cases."""
    shards = [shard(key, n, m) for key in tenants(80_000)]
    pairs = len(shards) // 2
    seen = Counter(overlap(a, b) for a, b in zip(shards[::2], shards[1::2], strict=True))
    for j, odds in enumerate(Odds(n, m).overlap):
        assert abs(seen[j] - pairs * odds) <= 4 * sqrt(pairs * odds * (1 - odds)) + 1  # 4 deviations; 1 for rare ones


@given(st.integers(1, 100), st.integers(1, 120))
def test_odds_are_exact(n: int, m: int) -> None:
    """The odds are the hypergeometric ones, rounded once; they sum to 1 and end in 1 / C(N, M)."""
    width = min(n, m)
    exact = [Fraction(comb(width, j) * comb(n - width, width - j), comb(n, width)) for j in range(width + 1)]

    assert sum(exact) == 1
    assert tuple(map(float, exact)) == Odds(n, m).overlap
    assert 1 / comb(n, width) == Odds(n, m).overlap[-1] == Odds(n, m).full


def test_odds_of_the_largest_queue() -> None:
    """The odds do not overflow for 2,048 of 4,096 streams: what is too small for a float is 0."""
    odds = Odds(4096, 2048).overlap

    assert len(odds) == 2049
    assert 0.0 == odds[0] == odds[-1]
    assert sum(odds) == pytest.approx(1)


def test_blocked_odds_by_enumeration() -> None:
    """The odds that several keys cover a shard agree with counting all their shards."""
    shards = [set(streams) for streams in combinations(range(6), 2)]
    covered = sum({0, 1} <= a | b | c for a in shards for b in shards for c in shards)

    assert covered / len(shards) ** 3 == Odds(6, 2).blocked(3)
    assert Odds(6, 2).full == Odds(6, 2).blocked(1)
    assert Odds(6, 2).blocked(0) == 0


@pytest.mark.runs_in("test-all")
def test_blocked_odds_are_what_happens() -> None:
    """With 4 noisy keys on 16 streams, 2 each, 15.8 % of the quiet keys have no clean stream."""
    trials = 10_000
    blocked = 0
    for i in range(trials):
        noisy = {stream for j in range(4) for stream in shard(f"noisy-{i}-{j}", 16, 2)}
        blocked += noisy.issuperset(shard(f"quiet-{i}", 16, 2))
    odds = Odds(16, 2).blocked(4)

    assert odds == pytest.approx(0.158, abs=0.001)
    assert abs(blocked / trials - odds) < 4 * sqrt(odds * (1 - odds) / trials)


# --- refused


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("", "not be empty"),
        (b"", "not be empty"),
        ("x" * (MAX_SHARD_KEY + 1), "at most 1024 bytes, this one has 1025"),
        ("é" * 513, "this one has 1026"),
        ("\ud800", "lone surrogate"),
        ("ok" * 100 + "\udfff", "lone surrogate"),
        (42, "str or bytes, not int"),
        (None, "str or bytes, not NoneType"),
        (bytearray(b"a"), "str or bytes, not bytearray"),
        (["a"], "str or bytes, not list"),
        (("a",), "str or bytes, not tuple"),
    ],
    ids=lambda value: f"{value!r:.20}",
)
def test_bad_keys_are_refused(key: Any, advice: str) -> None:
    """A key that is empty, over 1,024 bytes, not Unicode or of another type is a ConfigError that says so."""
    with pytest.raises(ConfigError, match=advice):
        shard(key, 16, 2)


@pytest.mark.parametrize("bad", [0, -1, 4097, 10**5000, True, 1.0, "16", None, [1]], ids=lambda value: f"{type(value)}")
def test_bad_numbers_of_streams_are_refused(bad: Any) -> None:
    """streams must be an int of 1 to 4,096; True and 1.0 are not, even when the shard for 1 is cached."""
    shard("k", 1, 1)
    with pytest.raises(ConfigError, match="streams must be an int from 1 to 4096"):
        shard("k", bad, 1)


@pytest.mark.parametrize("bad", [0, -1, -(10**5000), True, 1.0, "2", None, [1]], ids=lambda value: f"{type(value)}")
def test_bad_widths_are_refused(bad: Any) -> None:
    """streams_per_shard must be an int of at least 1."""
    shard("k", 1, 1)
    with pytest.raises(ConfigError, match="streams_per_shard must be an int of at least 1"):
        shard("k", 1, bad)
    with pytest.raises(ConfigError):
        Odds(1, bad)


@pytest.mark.parametrize("bad", [-1, True, 1.5])
def test_bad_noisy_counts_are_refused(bad: Any) -> None:
    """noisy must be an int of at least 0."""
    with pytest.raises(ConfigError, match="noisy"):
        Odds(16, 2).blocked(bad)


def test_limits_are_inclusive() -> None:
    """A key of 1,024 bytes and a shard of 4,096 streams are dealt."""
    assert len(shard("x" * MAX_SHARD_KEY, 4096, 10**30)) == 4096
