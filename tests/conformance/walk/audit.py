"""Where the ledger of a queue contradicts the model, or itself: an own count of every key."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from shardq.protocol.keys import QueueKeys
from shardq.protocol.replies import delivered, next_stream
from tests.conformance.walk.ledger import NEVER, Ledger
from tests.conformance.walk.model import DEAD, DELAYED, LEASED, WAITING, Known, Model
from tests.conformance.walk.terms import problems_of_terms

UNIT = 1_000_000
"""ms in a unit of the model's time."""

SLACK = UNIT // 2
"""How much real time may pass while the model's stands still: minutes."""

WHERE = {WAITING: {"new", "returned", "held"}, DELAYED: {"delayed"}, LEASED: {"leased"}}
COUNTERS = (
    "dead_lettered", "dead_deleted", "dead_dropped", "redriven", "cancelled", "purged", "expired", "redelivered",
)  # fmt: skip


def problems(found: Ledger, model: Model, keys: QueueKeys) -> Iterator[str]:
    """What is wrong, each with its kind in front; nothing in a sound queue."""
    return chain(
        self_contradictions(found, keys),
        _placed(found, model),
        _counted(found, model),
        _remembered(found, model),
        _leased(found, model),
        _dead(found, model),
        _deduplicated(found, model),
        _shares(found, model),
        _announced(found, model),
        problems_of_terms(found, model),
    )


def self_contradictions(found: Ledger, keys: QueueKeys) -> Iterator[str]:
    """What is wrong whatever was done: where the ledger contradicts itself."""
    return chain(
        _stored(found, keys),
        _sentinels(found),
        (f"census: {each}" for each in found.census.problems()),
        _failed(found),
    )


def _stored(found: Ledger, keys: QueueKeys) -> Iterator[str]:
    """No key is missing, and none is there that is not the queue's."""
    wanted = {*keys.fixed, *map(keys.stream, range(int(found.meta["streams"])))}
    if found.stored != wanted:
        yield f"keys: too many {found.stored - wanted}, missing {wanted - found.stored}"


def _sentinels(found: Ledger) -> Iterator[str]:
    """Every declared key exists at all times."""
    for name, members in found.sorted.items():
        if members.get(b"") != (0.0 if name in ("delayed", "returned") else NEVER):
            yield f"sentinel: that of {name} is {members.get(b'')}"
    for name, fields in found.hashes.items():
        if b"" not in fields:
            yield f"sentinel: that of {name} is gone"
    if b"" not in found.cancelled:
        yield "sentinel: that of cancelled is gone"


def _placed(found: Ledger, model: Model) -> Iterator[str]:
    """Each message is at the one place where its state says it is, and there are no others."""
    told = {found.id_of(handle): handle for handle in found.known}
    living = {each.message_id: each for each in model.living()}
    if told.keys() != living.keys():
        more = [found.places_of(told[each]) for each in told.keys() - living.keys()]
        less = [model_text(living[each], model) for each in living.keys() - told.keys()]
        yield f"messages: too many {sorted(told.keys() - living.keys())} in {more}, missing {less}"
    for message_id, each in living.items():
        handle = told.get(message_id)
        if handle is not None and (places := found.places_of(handle)) and places[0] not in WHERE[each.state]:
            yield f"place: {model_text(each, model)} is in {places}"


def _counted(found: Ledger, model: Model) -> Iterator[str]:
    """The queue's own counters."""
    counters, meta = model.counters, found.meta
    for name in COUNTERS:
        if int(meta.get(name, "0")) != counters.get(name, 0):
            yield f"counter: {name} is {meta.get(name, 0)}, not {counters.get(name, 0)}"
    waiting = sum(apart.count > 0 and "r" not in apart.flags for apart in found.delayed.values())
    if int(meta.get("retrying", "0")) != waiting:
        yield f"counter: retrying is {meta.get('retrying', 0)}, not {waiting}"
    if int(meta.get("vanished", "0")):
        yield f"counter: {meta['vanished']} have vanished"
    if int(meta["n"]) != counters.get("written", 0) or int(meta["adopted"]):
        yield f"counter: n is {meta['n']}, adopted {meta['adopted']}, {counters}"
    if delivered(meta["offset"]) != counters.get("delivered", 0):
        yield f"counter: {delivered(meta['offset'])} were delivered, not {counters.get('delivered', 0)}"
    if not 0 <= next_stream(meta["offset"]) <= 4096 or not int(meta["wanted"]) <= int(meta["streams"]):
        yield f"counter: offset {meta['offset']}, {meta['wanted']} of {meta['streams']}"


def _remembered(found: Ledger, model: Model) -> Iterator[str]:
    """What is known of messages that were delivered before: how often, the last error, who was rejected."""
    by_id = {each.message_id: each for each in model.living()}
    for handle, apart in (found.returned | found.delayed).items():
        each = by_id.get(found.id_of(handle))
        if each is None:
            continue
        text = found.hashes["errors"].get(handle.partition(":")[2].encode(), b"||").split(b"|", 2)[2].decode()
        error = "lease ended" if "l" in apart.flags.lower() else text if "e" in apart.flags else ""
        if (apart.count, error, "r" in apart.flags) != (each.life, each.error, each.rejected):
            yield f"attempts: {model_text(each, model)}, it says {apart}, {error!r}"
        if ("u" in apart.flags) != each.has_unique_key:
            yield f"attempts: {model_text(each, model)} has a unique key or none, it says {apart}"
    yield from (f"attempts: {model_text(by_id[found.id_of(handle)], model)} is said to be new"
                for handle in (*found.new, *found.held) if by_id[found.id_of(handle)].life)  # fmt: skip


def _leased(found: Ledger, model: Model) -> Iterator[str]:
    """The tokens say what they should, and times are those that were asked for."""
    for handle, lease in found.leased.items():
        each = model.messages.get(found.id_of(handle))
        if each is None or each.state != LEASED:
            continue
        if (lease.count, lease.key) != (each.life, each.key):
            yield f"lease: {lease} of {model_text(each, model)}"
        yield from _late(lease.ends, each, found, model)
    for handle, apart in found.delayed.items():
        each = model.messages.get(found.id_of(handle))
        if each is not None and each.state == DELAYED:
            yield from _late(apart.due, each, found, model)
            if found.sorted["due"].get(apart.name, NEVER) > max(apart.due, found.now) + 1:
                yield f"due: nobody looks at {apart} before {found.sorted['due'].get(apart.name)}"
    # (The part behind the point of a lease's score is no time: `Leases.spell_end`.)
    ends = (math.ceil(score) for token, score in found.sorted["leases"].items() if token)
    heads = {"lease_at": min(ends, default=NEVER), "due_at": min(found.sorted["due"].values(), default=NEVER)}
    for name, head in heads.items():
        if float(found.meta[name]) > head + 0.001:
            yield f"due: {name} is {found.meta[name]}, after {head}"
    gone = {handle.decode() for handle in found.cancelled if handle}
    if {found.id_of(handle) for handle in gone} != {each.message_id for each in model.living() if each.cancelled}:
        yield f"cancelled: {gone}"


def _late(at: float, each: Known, found: Ledger, model: Model) -> Iterator[str]:
    if abs(at - found.now - (each.until - model.now) * UNIT) > SLACK:
        yield f"time: {model_text(each, model)} ends in {at - found.now} ms"


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


def _failed(found: Ledger) -> Iterator[str]:
    """Each letter is counted in the group that it names, and each try that failed in some group."""
    marks = [fields.get(b"m", b"").rpartition(b" f")[2] for _, fields in found.streams["dead"]]
    if not all(marks):
        yield f"failures: a letter names no group, of {marks}"
    groups = {field: text.split(b"|") for field, text in found.hashes["failures"].items() if field.count(b"|") == 2}
    dead = {field: int(words[1]) + _apart(found, b"x", field, words) for field, words in groups.items()}
    told = {field: number for field, number in dead.items() if number}
    if told != Counter(marks):
        yield f"failures: the letters of groups are {told}, and there are {Counter(marks)}"
    if int(found.hashes["failures"][b""] or 0) != len(groups):
        yield f"failures: {found.hashes['failures'][b'']!r} groups are counted, and there are {len(groups)}"
    tries = sum(int(each) for words in groups.values() for each in words[8].split(b","))
    tries += sum(_apart(found, mark, field, words) for field, words in groups.items() for mark in (b"+", b"x"))
    if int(found.meta.get("failed", "0")) != tries:
        yield f"failures: {found.meta.get('failed')} tries failed, the groups have {tries}"


def _apart(found: Ledger, mark: bytes, field: bytes, words: Sequence[bytes]) -> int:
    """How many tries of a group were counted apart from its text, in the second that this names."""
    return int(found.hashes["failures"].get(b"%b%b|%b" % (mark, words[6], field), b"0"))


def _deduplicated(found: Ledger, model: Model) -> Iterator[str]:
    """Keys and bulk offsets share a hash, writers are in the state; the index of each kind has these and no others."""
    hashed = {field: text for field, text in found.hashes["dedup"].items() if field}
    ends = {field: int(text.split(b"|", 1)[0]) for field, text in hashed.items() if field[:2] not in (b"u:", b"l:")}
    lanes = {field: int(text.split(b"|", 1)[0]) for field, text in found.hashes["meta"].items() if field[:2] == b"p:"}
    for name, wanted in (("dedup_index", ends), ("producers", lanes), ("bulk_offsets", {})):
        index = {member: int(score) for member, score in found.sorted[name].items() if member[:2] not in (b"", b"u:")}
        if index != wanted:
            yield f"dedup: {name} is {index}, and there are {wanted}"
    told = {_text(field[2:]): text.split(b"|", 2)[1].decode()
            for field, text in hashed.items() if field.startswith(b"k:")}  # fmt: skip
    for key, (message_id, until) in model.keyed.items():
        if told.get(key, message_id) != message_id or (until > model.now and key not in told):
            yield f"dedup: {key} is {told.get(key)}, not {message_id}"
    if extra := told.keys() - model.keyed.keys():
        yield f"dedup: {extra} was never given"
    yield from _unique(found, model, hashed)
    if len(lanes) > model.counters.get("producers", 0):
        yield f"dedup: {len(lanes)} sequences of {model.counters.get('producers', 0)} concurrent writers"


def _unique(found: Ledger, model: Model, hashed: dict[bytes, bytes]) -> Iterator[str]:
    """Each unique key names its message, and where that lies; those of messages that ended may stay for a while."""
    told = {_text(field[2:]): text.partition(b"|")[0].decode().split(" ", 2)
            for field, text in hashed.items() if field.startswith(b"u:")}  # fmt: skip
    indexed = {_text(member[2:]) for member in found.sorted["dedup_index"] if member.startswith(b"u:")}
    if told.keys() != indexed:
        yield f"unique: {sorted(indexed)} are in the index, {sorted(told)} in the hash"
    live = {key: message_id for key, (entry, state, message_id) in told.items()
            if state != "p" and entry.encode() in found.hashes["bodies"]}  # fmt: skip
    holders = {each.unique: each.message_id for each in model.living() if each.unique and not each.cancelled}
    standing = {each.unique for each in model.living()
                if each.unique and model.stands(each) and not model.may_have_given_up(each)}  # fmt: skip
    if not live.items() <= holders.items() or not standing <= live.keys():
        yield f"unique: {live}, not {holders}, of which {standing} can be delivered"


def _text(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")


def _shares(found: Ledger, model: Model) -> Iterator[str]:
    """What the state says each tenant uses of a bound is a full count; nobody who uses nothing is in it."""
    owners = [_owner_of(field, text) for field, text in found.hashes["dedup"].items()]
    keys = Counter(owner for owner in owners if owner is not None)
    letters = Counter(each.buried_as for each in model.having(DEAD))
    for kind, wanted in ((b"D:", keys), (b"X:", letters), (b"R:", Counter())):
        told = {name[2:]: int(text.split(b" ")[0]) for name, text in found.hashes["meta"].items() if name[:2] == kind}
        if told != wanted:
            yield f"shares: {kind!r} is {told}, and there are {dict(wanted)}"
    numbers = {name for name in found.hashes["moved"] if name.startswith(b"n")}
    if len(numbers) != len(found.streams["dead"]):
        yield f"shares: {len(numbers)} letters have a number, there are {len(found.streams['dead'])}"
    if len(found.sorted["dedup_index"]) - 1 > model.terms.max_dedup and not model.regime:
        yield f"shares: {len(found.sorted['dedup_index']) - 1} keys, {model.terms.max_dedup} may be"


def _owner_of(field: bytes, text: bytes) -> bytes | None:
    """Who has a dedup key or a unique key."""
    if field[:2] == b"k:":
        return text.split(b"|", 2)[2]
    return text.split(b"|", 1)[1] if field[:2] == b"u:" else None


def _announced(found: Ledger, model: Model) -> Iterator[str]:
    """While readers may be blocked, what lies in the streams is not without notifications.

    Those who were blocked when the queue was paused are told of that, and of nothing else before it goes on.
    """
    told = len(found.streams["notifications"])
    blocked = int(found.meta["waiting"]) > found.now
    if blocked and not model.is_stopped and not told and found.new:
        yield f"notified: nobody of {len(found.new)} messages"
    if not blocked and told:
        yield f"notified: {told} times, but nobody waits"


def model_text(each: Known, model: Model) -> str:
    """One message, for people."""
    return (
        f"{each.message_id} of {each.key!r} ({each.state} until {each.until - model.now:+d}, life {each.life}, total "
        f"{each.total}, error {each.error!r}{', counts' * each.counts}{', stale' * each.stale}"
        f"{', rejected' * each.rejected}{', cancelled' * each.cancelled})"
    )
