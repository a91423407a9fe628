"""Where the ledger of a queue contradicts the model, or itself: an own count of every key."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import chain

from shardq.protocol.keys import QueueKeys
from tests.conformance.walk.ledger import NEVER, TIMES, Ledger, order, time_of
from tests.conformance.walk.model import DEAD, DELAYED, LEASED, WAITING, Known, Model
from tests.conformance.walk.terms import problems_of_terms

UNIT = 1_000_000
"""ms in a unit of the model's time."""

SLACK = UNIT // 2
"""How much real time may pass while the model's stands still: minutes."""

WHERE = {WAITING: {"new", "redelivery", "held"}, DELAYED: {"delayed"}, LEASED: {"leased"}}


def problems(found: Ledger, model: Model, keys: QueueKeys) -> Iterator[str]:
    """What is wrong, each with its kind in front; nothing in a sound queue."""
    return chain(
        _stored(found, keys),
        _sentinels(found),
        _placed(found, model),
        _lined_up(found),
        _counted(found, model),
        _remembered(found, model),
        _leased(found, model),
        _sooner(found),
        _dead(found, model),
        _deduplicated(found, model),
        _announced(found, model),
        problems_of_terms(found, model),
    )


def _stored(found: Ledger, keys: QueueKeys) -> Iterator[str]:
    """No key is missing, and none is there that is not the queue's."""
    wanted = {*keys.fixed, *map(keys.stream, range(int(found.meta["streams"])))}
    if found.stored != wanted:
        yield f"keys: too many {found.stored - wanted}, missing {wanted - found.stored}"


def _sentinels(found: Ledger) -> Iterator[str]:
    """Every declared key exists at all times."""
    scores = dict.fromkeys(found.sorted, NEVER) | {"ready": -1.0, "redelivery": -1.0, "overflow": 0.0}
    for name, members in found.sorted.items():
        if members.get(b"") != scores[name]:
            yield f"sentinel: that of {name} is {members.get(b'')}"
    for name, fields in found.hashes.items():
        if b"" not in fields:
            yield f"sentinel: that of {name} is gone"
    if b"" not in found.cancelled:
        yield "sentinel: that of cancelled is gone"


def _placed(found: Ledger, model: Model) -> Iterator[str]:
    """Each message is in exactly the place that it should be in, with its own body, and no other is there."""
    told = {found.id_of(handle): handle for handle in found.known}
    living = {each.message_id: each for each in model.living()}
    yield from (f"lost: {model_text(living[each], model)}" for each in living.keys() - told.keys())
    yield from (f"risen: {each} is there, but the model says {model.messages[each].state}"
                if each in model.messages else f"unknown: {each}" for each in told.keys() - living.keys())  # fmt: skip
    for message_id, each in living.items():
        handle = told.get(message_id)
        if handle is not None:
            places = found.places_of(handle)
            if len(places) != 1 or places[0] not in WHERE[each.state]:
                yield f"place: {model_text(each, model)} is in {places}"
            body = found.bodies.get(handle)
            if (body is None) != each.cancelled:
                yield f"body: that of {model_text(each, model)} is {body and list(body)}"
            elif body is not None and body.get(b"K" if each.counts else b"k") != each.key:
                yield f"body: {model_text(each, model)} has another shard key or mark: {list(body)}"
    yield from (f"doubled: {each}" for each in found.doubled)
    everywhere = {*found.new, *found.returned, *found.leased, *found.delayed, *found.held}
    yield from (f"stray: {each} is in {found.places_of(each)}, without a body" for each in everywhere - found.known)


def _lined_up(found: Ledger) -> Iterator[str]:
    """`lens`, `ready` and the redelivery queues are a full count."""
    waiting, lens = found.per_stream(), found.hashes["lens"]
    streams = int(found.meta["streams"])
    counted = {int(name): int(value) for name, value in lens.items() if name.isdigit()}
    for stream in waiting.keys() | counted.keys():
        if counted.get(stream, 0) != waiting[stream]:
            yield f"lens: of {stream} it says {counted.get(stream, 0)}, there are {waiting[stream]}"
    ready = {int(member): score for member, score in found.sorted["ready"].items() if member}
    if ready != {stream: stream for stream, count in waiting.items() if count}:
        yield f"ready: {ready}, not {sorted(stream for stream, count in waiting.items() if count)}"
    fields = {letter + b"%d" % number for number in range(streams) for letter in (b"", b"h", b"o")}
    if extra := lens.keys() - fields - {b""}:
        yield f"lens: fields of no stream: {extra}"
    top = int(found.meta["n"])
    for handle, (stream, position) in found.returned.items():
        if not 0 <= stream < streams or not 0 <= position <= top:
            yield f"redelivery: {handle} has stream {stream}, position {position}, of {streams} and {top}"
    for number in range(streams):
        if order(lens.get(b"h%d" % number, b"0-0").decode())[1] > top:
            yield f"lens: the cursor of {number} is beyond all"


def _counted(found: Ledger, model: Model) -> Iterator[str]:
    """The queue's own counters."""
    meta = {name: int(value) for name, value in found.meta.items() if value.lstrip("-").isdigit()}
    counters, skipped = model.counters, int(found.meta.get("skipped", "0"))
    for name in (
        "acked",
        "dead_lettered",
        "dead_deleted",
        "dead_dropped",
        "cancelled",
        "purged",
        "redriven",
        "expired",
    ):
        if meta.get(name, 0) != counters.get(name, 0):
            yield f"counter: {name} is {meta.get(name, 0)}, not {counters.get(name, 0)}"
    if meta.get("vanished", 0):
        yield f"counter: {meta['vanished']} have vanished"
    if meta["n"] != counters.get("written", 0) + counters.get("redriven", 0) + skipped:
        yield f"counter: n is {meta['n']}, {counters} and {skipped} skipped"
    if meta["n"] + meta["adopted"] - meta["gone"] != len(model.living()):
        yield f"counter: n {meta['n']} - gone {meta['gone']} is not {len(model.living())}"
    if meta["owed"] != sum(1 for name in found.hashes["lens"] if name.startswith(b"o")):
        yield f"counter: owed is {meta['owed']}"
    if not 0 <= meta["offset"] <= 4096 or not meta["wanted"] <= meta["streams"] or meta["adopted"]:
        yield f"counter: offset {meta['offset']}, {meta['wanted']} of {meta['streams']}, adopted {meta['adopted']}"


def _remembered(found: Ledger, model: Model) -> Iterator[str]:
    """What is known beside the bodies: deliveries so far, last errors, original ids, owners of what is delayed."""
    by_id = {each.message_id: each for each in model.living()}
    told: dict[str, tuple[int, str, str]] = {}
    for field, text in found.hashes["attempts"].items():
        if field:
            before, streams, why = text.decode().split("|", 2)
            told[field.decode()] = (int(before.partition("@")[0]), streams, why)
    yield from (f"attempts: of {handle}, which is gone" for handle in told.keys() - found.known)
    for handle in found.known:
        each = by_id.get(found.id_of(handle))
        if each is None or each.state == LEASED:
            continue
        count, hand, error = told.get(handle, (0, "", ""))
        if count != each.life or error != each.error:
            yield f"attempts: {model_text(each, model)}, it says {count} and {error!r}"
        if hand.startswith("-") and not each.rejected:
            yield f"attempts: {model_text(each, model)} was not rejected"
        if each.rejected and not hand.startswith("-"):
            yield f"attempts: {model_text(each, model)} was rejected, which nothing says any more"
    yield from (f"moved: {handle}, which is gone" for handle in found.ids.keys() - found.known)
    owners = {handle.decode(): key for handle, key in found.hashes["shard_keys"].items() if handle}
    wanted = {handle: found.bodies[handle][b"K"] for handle in found.delayed if b"K" in found.bodies.get(handle, {})}
    if owners != wanted:
        yield f"owners: {owners}, not {wanted}"


def _leased(found: Ledger, model: Model) -> Iterator[str]:
    """The tokens say what they should, and times are those that were asked for."""
    for handle, lease in found.leased.items():
        each = model.messages.get(found.id_of(handle))
        if each is None or each.state != LEASED:
            continue
        if lease.count != each.life or (lease.key is not None and lease.key != each.key):
            yield f"lease: {lease} of {model_text(each, model)}"
        if (lease.key is not None) != each.counts:
            yield f"lease: {lease} does not say whether it counts: {model_text(each, model)}"
        yield from _late(lease.ends, each, found, model)
    for handle, due in found.delayed.items():
        each = model.messages.get(found.id_of(handle))
        if each is not None and each.state == DELAYED:
            yield from _late(due, each, found, model)
    gone = {handle.decode() for handle in found.cancelled if handle}
    wanted = {each.message_id for each in model.living() if each.cancelled}
    if {found.id_of(handle) for handle in gone} != wanted:
        yield f"cancelled: {gone}, not {wanted}"


def _late(score: int, each: Known, found: Ledger, model: Model) -> Iterator[str]:
    if abs(score - found.now - (each.until - model.now) * UNIT) > SLACK:
        yield f"time: {model_text(each, model)} ends in {score - found.now} ms"


def _sooner(found: Ledger) -> Iterator[str]:
    """Where leases and delays are kept in buckets, `due` says of each no later a time than the first in it has.

    Of those that are due, it says when they have their turn.
    """
    for letter, shift, index in ((b"l", 0, "leases"), (b"d", TIMES, "delayed")):
        for member, score in found.sorted[index].items():
            bucket = int(score) // TIMES
            head = found.sorted.get("due", {}).get(letter + b"%d" % bucket, math.inf)
            if member and bucket and head - shift > max(time_of(score), found.now):
                yield f"due: bucket {bucket} of {index} is said to be due at {head}, {member!r} is at {score}"


def _dead(found: Ledger, model: Model) -> Iterator[str]:
    """The dead letters, each with its reason and count."""
    told = {fields[b"i"].decode(): (fields[b"r"].decode(), int(fields[b"c"]), fields[b"e"].decode())
            for _, fields in found.streams["dead"]}  # fmt: skip
    wanted = {each.message_id: (each.reason, each.total, each.error) for each in model.having(DEAD)}
    if told != wanted:
        yield f"dead: {dict(told.items() - wanted.items())}, not {dict(wanted.items() - told.items())}"
    entries = {fields[b"i"].decode(): entry for entry, fields in found.streams["dead"]}
    if found.letters != entries:
        yield f"dead: they are said to lie at {found.letters}, not {entries}"
    if len(told) != len(found.streams["dead"]):
        yield "dead: one letter is there twice"


def _deduplicated(found: Ledger, model: Model) -> Iterator[str]:
    """Keys, producer sequences and bulk offsets share a hash, and each kind has its index by end: no more, no less."""
    hashed = {field: text for field, text in found.hashes["dedup"].items() if field}
    ends = {field: int(text.split(b"|", 1)[0]) for field, text in hashed.items() if not field.startswith(b"u:")}
    for name, kind in (("dedup_index", (b"k:", b"r:")), ("producers", b"p:"), ("bulk_offsets", b"o:")):
        index = {member: int(score) for member, score in found.sorted[name].items() if member[:2] not in (b"", b"u:")}
        wanted = {field: end for field, end in ends.items() if field.startswith(kind)}
        if index != wanted:
            yield f"dedup: {name} is {index}, the hash says {wanted}"
    told = {_text(field[2:]): text.split(b"|", 1)[1].decode()
            for field, text in found.hashes["dedup"].items() if field.startswith(b"k:")}  # fmt: skip
    for key, (message_id, until) in model.keyed.items():
        if told.get(key, message_id) != message_id or (until > model.now and key not in told):
            yield f"dedup: {key} is {told.get(key)}, not {message_id}"
    if extra := told.keys() - model.keyed.keys():
        yield f"dedup: {extra} was never given"
    yield from _unique(found, model, hashed)
    sequences = sum(1 for field in ends if field.startswith(b"p:"))
    if sequences > model.counters.get("producers", 0):
        yield f"dedup: {sequences} sequences of {model.counters.get('producers', 0)} concurrent writers"


def _unique(found: Ledger, model: Model, hashed: dict[bytes, bytes]) -> Iterator[str]:
    """Each unique key names its message, and where that lies; those of messages that ended may stay for a while."""
    told = {_text(field[2:]): text.decode().split() for field, text in hashed.items() if field.startswith(b"u:")}
    indexed = {_text(member[2:]) for member in found.sorted["dedup_index"] if member.startswith(b"u:")}
    if told.keys() != indexed:
        yield f"unique: {sorted(indexed)} are in the index, {sorted(told)} in the hash"
    live = {key: (found.id_of(f"d:{entry}"), entry) for key, (entry, _) in told.items() if f"d:{entry}" in found.bodies}
    holders = {each.unique: each.message_id for each in model.living() if each.unique and not each.cancelled}
    if {key: message_id for key, (message_id, _) in live.items()} != holders:
        yield f"unique: {live}, not {holders}"
    yield from (f"unique: {key} says {told[key][1]}, not {message_id}"
                for key, (message_id, _) in live.items() if told[key][1] != message_id)  # fmt: skip


def _text(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")


def _announced(found: Ledger, model: Model) -> Iterator[str]:
    """While readers may be blocked, nothing deliverable in the streams is without a notification.

    Those who were blocked when the queue was paused are told of that, and of nothing else before it goes on.
    """
    entries = Counter(fields[b"s"] for _, fields in found.streams["notifications"])
    blocked = int(found.meta["waiting"]) > found.now
    waiting = found.per_stream().total()
    if blocked and not model.is_stopped and entries.total() < min(waiting, 9000):
        yield f"notified: {entries} for {waiting} messages"
    asleep = int(found.meta.get("asleep") or 0) > found.now
    if not blocked and set(entries) - ({b""} if asleep else set()):
        yield f"notified: {entries}, but nobody waits"


def model_text(each: Known, model: Model) -> str:
    """One message, for people."""
    return (
        f"{each.message_id} of {each.key!r} ({each.state} until {each.until - model.now:+d}, life {each.life}, total "
        f"{each.total}, error {each.error!r}{', counts' * each.counts}{', stale' * each.stale}"
        f"{', rejected' * each.rejected}{', cancelled' * each.cancelled})"
    )
