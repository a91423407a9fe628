"""Whether the queue's settings, limits, weights and shards are what the model's terms say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.conformance.walk.ledger import Ledger
from tests.conformance.walk.model import LEASED, Model


def problems_of_terms(found: Ledger, model: Model) -> Iterator[str]:
    """What is wrong, each with its kind in front."""
    yield from _window(found, model)
    yield from _limits(found, model)
    yield from _shards(found, model)


def flying(model: Model) -> Counter[bytes]:
    """Of each name what counts in its cap: what is in flight, until its lease is taken back."""
    return Counter(model.terms.name_of(each.key) for each in model.having(LEASED) if each.counts)


def _window(found: Ledger, model: Model) -> Iterator[str]:
    """What a shard key has in the shared streams is in its window, as long as that is what it was at first."""
    if model.regime or not model.terms.window:
        return
    for name, counted in found.census.counted_of.items():
        if counted["taken"] > model.terms.window:
            yield f"window: {name!r} has {counted['taken']} messages in the shared streams"


def _limits(found: Ledger, model: Model) -> Iterator[str]:
    """Own limits and weights are listed, and only those that there are; what is over may be swept later."""
    told = {name: _present(text, found.now) for name, text in found.hashes["limits"].items() if name}
    terms = model.terms
    for name in told.keys() | terms.own.keys() | terms.weights.keys():
        cap, rate, burst, until, _, weight = told.get(name, [b"", b"", b"", b"0", b"0", b"1"])
        own = terms.own.get(name)
        said = (cap, rate != b"", burst, int(weight), int(until) > found.now)
        paused = own is not None and own.paused_until > model.now
        wanted_burst = own.burst if own else None
        wanted = (_shown(own.cap if own else None), wanted_burst is not None, _shown(wanted_burst),
                  terms.weights.get(name, 1), paused)  # fmt: skip
        if said != wanted:
            yield f"limits: of {name!r} {told.get(name)}, not {wanted}"
    yield from _accounts(found)


def _accounts(found: Ledger) -> Iterator[str]:
    """What is listed of limits is what the account says, as long as nothing of it is over."""
    for name, text in found.hashes["limits"].items():
        listed = text.partition(b"\n")[0]
        parts = listed.split(b",")
        is_over = any(0 < int(parts[at]) <= found.now for at in (3, 6, 8) if at < len(parts))
        account = found.hashes["meta"].get(b"t:" + name, b"").split(b" ")
        if name and not is_over and account[10:11] != [listed]:
            yield f"limits: of {name!r} {listed!r} are listed, the account is {account}"


def _present(text: bytes, now: float) -> list[bytes]:
    """The parts of limits that have no end, but that of a pause: those that are over are as if they were not there."""
    cap, rate, burst, until, length, weight, *ends = text.partition(b"\n")[0].split(b",")
    limits_until, _, weight_until, _ = map(int, ends or "0000")
    if 0 < limits_until <= now:
        cap = rate = burst = b""
    return [cap, rate, burst, until, length, b"1" if 0 < weight_until <= now else weight]


def _shown(number: int | None) -> bytes:
    return b"" if number is None else b"%d" % number


def _shards(found: Ledger, model: Model) -> Iterator[str]:
    told = {name: tuple(map(int, streams.split(b","))) for name, streams in found.hashes["assigned"].items() if name}
    if told != model.terms.shards:
        yield f"shards: {told}, not {model.terms.shards}"
    if int(found.meta.get("reach", "0")) != max(
        (stream + 1 for streams in told.values() for stream in streams), default=0
    ):
        yield f"shards: they reach {found.meta.get('reach')}"
    wrong = {name: found.meta.get(name) for name, value in _settings(model).items()
             if int(found.meta.get(name, "0")) != value and name in found.meta}  # fmt: skip
    if wrong:
        yield f"settings: {wrong}, not {_settings(model)}"


def _settings(model: Model) -> dict[str, int]:
    terms = model.terms
    return {
        "window": terms.window, "max_in_flight": terms.cap, "max_backlog": terms.max_backlog, "parents": terms.parents,
        "total_in_flight": terms.total_in_flight, "total_burst": terms.total_burst, "burst": terms.rate_burst,
        "drop_dead": terms.drop_dead, "max_len": terms.max_len, "max_dedup": terms.max_dedup,
        "max_deliveries": terms.max_deliveries, "max_dead": terms.max_dead, "journal": terms.journal,
        "wanted": terms.streams,
    }  # fmt: skip
