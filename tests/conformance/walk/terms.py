"""Whether the queue's accounts, weights and shards are what a full count and the model's terms say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.conformance.walk.ledger import Ledger
from tests.conformance.walk.model import LEASED, Model

PLACES = 8
"""So many places the active shard keys have together, however small the window."""


def problems_of_terms(found: Ledger, model: Model) -> Iterator[str]:
    """What is wrong, each with its kind in front."""
    yield from _accounts(found, model)
    yield from _window(found, model)
    yield from _children(found, model)
    yield from _flights(found, model)
    yield from _weights(found, model)
    yield from _limits(found, model)
    yield from _shards(found, model)


def summed(counts: Counter[bytes], model: Model) -> Counter[bytes]:
    """The same by the names that are accounted."""
    total: Counter[bytes] = Counter()
    for key, count in counts.items():
        total[model.terms.name_of(key)] += count
    return total


def flying(found: Ledger, model: Model) -> Counter[bytes]:
    """Of each name the deliveries in flight that were handed out under the present cap."""
    names = (model.terms.name_of(each.key) for each in model.having(LEASED)
             if each.counts and each.cap_no == found.meta["cap_no"])  # fmt: skip
    return Counter(names)


def _fields(found: Ledger, kind: bytes) -> dict[bytes, list[bytes]]:
    fields = found.hashes["accounts"].items()
    return {field[2:]: text.split() for field, text in fields if field[:2] == kind}


def _accounts(found: Ledger, model: Model) -> Iterator[str]:
    shared, held = summed(found.shared(), model), summed(found.held_back(), model)
    delayed = summed(Counter(found.bodies[handle].get(b"K", b"") for handle in found.delayed), model)
    del delayed[model.terms.name_of(b"")]
    told = {name: _numbers(text) for name, text in _fields(found, b"t:").items()}
    wanted = {name: (shared[name], held[name], delayed[name]) for name in shared | held | delayed}
    if told != wanted:
        yield f"account: {dict(told.items() - wanted.items())}, not {dict(wanted.items() - told.items())}"
    active, held_back, *rest = map(int, found.hashes["accounts"].get(b"sum", b"0 0").split())
    if (active, held_back) != (len(shared | held), held.total()):
        yield f"account: the sum is {active} {held_back}, not {(len(shared | held), held.total())}"
    withheld = sum(int(word[1:]) for text in _fields(found, b"t:").values() for word in text if word[:1] == b"!")
    if rest != ([withheld] if withheld else []):
        yield f"account: {rest} are said to be withheld, the accounts say {withheld}"


def _numbers(text: list[bytes]) -> tuple[int, int, int]:
    """What an account says: in the shared streams, held back, delayed."""
    return int(text[0]), int(text[1]), int(text[-1][1:]) if text[-1].startswith(b"+") else 0


def _window(found: Ledger, model: Model) -> Iterator[str]:
    """What a shard key may have in the shared streams, as long as the rules are those of the beginning.

    A batch that wants more than the streams hold leaves in one call. What of it lies in a stream and was given back
    goes to that stream's redelivery queue, beyond the window, since its key may not be declared.
    """
    terms = model.terms
    if model.regime or not terms.counts:
        return
    beyond = summed(found.given_back(), model)
    for name, count in summed(found.shared(), model).items():
        if terms.window and count - beyond[name] > max(terms.window, PLACES):
            yield f"window: {name!r} has {count} messages in the shared streams"
        if terms.cap and not terms.withholds and count + flying(found, model)[name] > terms.cap:
            yield f"window: {name!r} has {count} messages there, and {flying(found, model)[name]} in flight"


def _children(found: Ledger, model: Model) -> Iterator[str]:
    told = {key: (int(text[0]), int(text[1])) for key, text in _fields(found, b"c:").items()}
    held = found.held_back() if model.terms.parents else Counter[bytes]()
    if {key: count for key, (count, _) in told.items()} != dict(held):
        yield f"children: they hold {dict(held)}, their accounts say {told}"
    if {key: tag for key, (_, tag) in told.items()} != found.turns:
        yield f"children: their turns are {found.turns}, their accounts say {told}"


def _flights(found: Ledger, model: Model) -> Iterator[str]:
    """Exact, unless there were deliveries of an earlier cap in flight: when these end it counts fewer, never more."""
    told = {name: (text[0].decode(), int(text[1])) for name, text in _fields(found, b"f:").items()}
    number, terms = found.meta["cap_no"], model.terms
    now = {name: count for name, (since, count) in told.items() if since == number}
    wanted = flying(found, model) if terms.counts_flights else Counter[bytes]()
    for name in now.keys() | wanted.keys():
        count = now.get(name, 0)
        if count > wanted[name] or (count < wanted[name] and name not in model.blurred and terms.counts_flights):
            yield f"flights: {name!r} has {wanted[name]} in flight, its account says {count}"
    if len(told) != len(now):
        yield f"flights: of an earlier cap {told.keys() - now.keys()}"


def _weights(found: Ledger, model: Model) -> Iterator[str]:
    told = {name: int(text[0]) for name, text in _fields(found, b"w:").items()}
    if told != model.terms.weights:
        yield f"weights: {told}, not {model.terms.weights}"
    weighted = found.meta.get("weighted", "0")
    if int(weighted.rstrip("+")) != len(model.terms.weights):
        yield f"weights: {found.meta.get('weighted')} are counted"
    parts, text = {}, found.hashes["accounts"].get(b"weights", b"")
    while text:
        weight, size, rest = text.split(b":", 2)
        parts[rest[: int(size)]], text = int(weight), rest[int(size) :]
    if parts != model.terms.weights:
        yield f"weights: as one text {parts}"
    if weighted.endswith("+") != _is_limited(model):
        yield f"limits: the mark is {weighted!r}"
    known = (b"t:", b"f:", b"w:", b"c:", b"l:", b"b:")
    if extra := [name for name in found.hashes["accounts"] if name[:2] not in known and name not in _SINGLE]:
        yield f"account: of nobody {extra}"


_SINGLE = {b"", b"sum", b"weights"}


def _is_limited(model: Model) -> bool:
    """The mark of a pause stays when the pause is over, until it is taken back or changed."""
    terms = model.terms
    return bool(terms.withholds or terms.total_in_flight or terms.total_burst or terms.paused_until)


def _limits(found: Ledger, model: Model) -> Iterator[str]:
    """Each is stored twice, and only those that there are."""
    told = {name: [text.split()[0], text.split()[2]] for name, text in found.hashes["limits"].items() if name}
    wanted = {name: [_shown(own.cap), _shown(own.burst)] for name, own in model.terms.own.items()}
    if told != wanted:
        yield f"limits: {told}, not {wanted}"
    if _fields(found, b"l:") != {name: text.split() for name, text in found.hashes["limits"].items() if name}:
        yield f"limits: {_fields(found, b'l:')}, in the list {found.hashes['limits']}"
    buckets = _fields(found, b"b:")
    rated = {name for name in buckets if model.terms.burst_of(name)}
    if extra := buckets.keys() - rated - model.unrated:
        yield f"limits: buckets of {extra}"
    if int(found.meta.get("limited", "0")) != len(model.terms.own):
        yield f"limits: {found.meta.get('limited')} are counted"


def _shown(number: int | None) -> bytes:
    return b"-" if number is None else b"%d" % number


def _shards(found: Ledger, model: Model) -> Iterator[str]:
    told = {name: tuple(map(int, streams.split(b","))) for name, streams in found.hashes["assigned"].items() if name}
    if told != model.terms.shards:
        yield f"shards: {told}, not {model.terms.shards}"
    if int(found.meta.get("reach", "0")) != max(
        (stream + 1 for streams in told.values() for stream in streams), default=0
    ):
        yield f"shards: they reach {found.meta.get('reach')}"
    if any(int(found.meta[name]) != value for name, value in _settings(model).items() if name in found.meta):
        yield f"settings: {found.meta}, not {_settings(model)}"


def _settings(model: Model) -> dict[str, int]:
    terms = model.terms
    return {
        "window": terms.window, "max_in_flight": terms.cap, "max_backlog": terms.max_backlog, "parents": terms.parents,
        "total_in_flight": terms.total_in_flight, "total_burst": terms.total_burst, "burst": terms.rate_burst,
        "drop_dead": terms.drop_dead,
        "max_deliveries": terms.max_deliveries, "max_dead": terms.max_dead, "journal": terms.journal,
        "wanted": terms.streams,
    }  # fmt: skip
