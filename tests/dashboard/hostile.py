"""A thousand names that somebody chose to do harm, and a queue that has them wherever the text of others can stand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from shardq import Client, ConfigError, Delivery, Limits, Message, Queue, Where
from shardq.model.call import Call
from shardq.model.failed import FailedTry, bounded_frames, fit_for_group, text_of
from shardq.protocol.beats import Beat, TaskCount, TenantCount, bucket_of, spell_row
from tests.servers import Server

QUEUES: Final = (
    "javascript:alert", "../../etc", "..", ".", "__proto__", "constructor", "//evil.example", "q/a/tenants", "x" * 200,
    "0",
)  # fmt: skip
"""The worst that the name of a queue may be."""

_PARTS: Final = (
    # tags and scripts
    "<script>alert({})</script>", "<img src=x onerror=alert({})>", "\"><svg onload=alert({})>", "</td></table><h1>{}",
    "<style>*{{display:none}}</style>{}", "<iframe srcdoc='<script>parent.alert({})</script>'>", "<!--{}",
    "<base href=//evil.example/{}>", "<meta http-equiv=refresh content={}>", "{{{{{}}}}}", "${{alert({})}}",
    # addresses
    "javascript:alert({})", "data:text/html,<script>alert({})</script>", "//evil.example/{}", "../../{}", "..",
    "?order=dead#x{}", "#/q/reports/{}", "a/b?c#d&e={}", "%", "%00{}", "%2e%2e%2f{}", "%E0%A4%A{}", "%25{}", "%s%n{}",
    # quotes
    "\"'`{}", "\" onmouseover=\"alert({})", "';alert({})//", "\\\"{}", "&quot;&lt;&#39;{}",
    # letters that turn, hide, pile up or break lines
    "\u202e{}gnp.exe", "\u05e9\u05dc\u05d5\u05dd{}", "\u2066{}\u2069", "\u200f\u200b{}", "e{}" + "\u0301" * 200,
    "\u0e49" * 60 + "{}", "a\n\n\nb{}", "\r\n\r\nHTTP/1.1 200 {}", "\u2028{}", "\x00{}", "\x1b]0;{}\x07", "\t{}",
    " {} ", "\ufeff{}", "\U000e0061{}", "\u3164{}",
    # long ones
    "x" * 400, "W" * 390 + "{}", "ab " * 130 + "{}", "\U0001f642" * 200 + "{}",
    "\U0001f469\u200d\U0001f466" * 40 + "{}", "\ufdfd" * 100 + "{}", "a-" * 200 + "{}",
    # what scripts take for something else
    "__proto__", "constructor", "toString{}", "null", "undefined", "NaN{}", "0", "-1", "true", "[object Object]{}",
    "bytes:ff", "bytes:{}",
)  # fmt: skip
_BYTES: Final = (b"\xff\xfe%d", b"\xc3\x28%d", b"\xed\xa0\x80%d", b"\xff" * 1000 + b"%d", b"<b>\x80%d")
"""Shard keys that are no text."""
_STRIDE: Final = 7
"""How far apart the parts are of which a name is made, more with each round through them."""


def names(count: int = 1000) -> list[str | bytes]:
    """Return so many hostile names, no two the same: each part alone, then two of them together."""
    found: dict[str | bytes, None] = {}
    for number in _counted():
        at, turn = number % (len(_PARTS) + len(_BYTES)), number // (len(_PARTS) + len(_BYTES))
        name: str | bytes
        if at >= len(_PARTS):
            name = _BYTES[at - len(_PARTS)] % number
        else:
            name = _PARTS[at].format(number)
            if turn:
                name += _PARTS[(at + _STRIDE * turn) % len(_PARTS)].format(number)
            name = name.encode()[:1024].decode(errors="ignore")
        found[name] = None
        if len(found) == count:
            break
    return [*found]


def _counted() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def text(name: str | bytes) -> str:
    """Return a name as text, for places where only that may stand."""
    return name if isinstance(name, str) else name.decode("latin-1")


def beset(server: Server, client: Client, queue_name: str, hostile: Sequence[str | bytes]) -> dict[str | bytes, str]:
    """Make a queue that has these names wherever one can be. Return a message of each."""
    queue = client.queue(
        queue_name, streams=2, journal=1000, max_schedules=100, max_dead=1000, result_ttl=600, max_deliveries=16
    )
    queue.declare()
    found = [_written(queue, name) for name in hostile]
    for delivery in queue.read_many(2 * len(hostile)):
        _failed(delivery, text(delivery.shard_key))
    for name in hostile:
        found.append(_written(queue, name))
        _named(queue, name)
    _workers(server, queue, hostile)
    with suppress(ConfigError):
        queue.redrive(Where(error=text(hostile[0])), rate=0.01, by=text(hostile[1]), note=text(hostile[2]))
    return dict(zip(hostile, found, strict=False))


def _written(queue: Queue, name: str | bytes) -> str:
    said = text(name)
    headers = {said[:100]: said[:200]}
    try:
        return str(queue.write_many([Message(Call(said, {"value": said}), name, headers=headers)])[0])
    except ConfigError:
        return str(queue.write({"value": said}, shard_key=name))


def _failed(delivery: Delivery, said: str) -> None:
    frames = bounded_frames([f"{' '.join(said.split())}:1 in {name}" for name in said.split()[:3] or ["f"]])
    error = FailedTry(text_of(said), fit_for_group(said), "", frames)
    if delivery.message_id.endswith(("0", "2", "4", "6", "8")):
        delivery.reject(error)
    else:
        delivery.nack(delay=3600, error=error)


def _named(queue: Queue, name: str | bytes) -> None:
    """Let somebody of this name give the tenant a limit, a weight, a pause, a plan and a schedule of this name."""
    said = text(name)
    by, note = said[:60], said[:200]
    for each in (
        lambda: queue.set_limits({name: Limits(max_in_flight=3)}, by=by, note=note),
        lambda: queue.set_weights({name: 2}, by=by, note=note),
        lambda: queue.pause(name, seconds=3600, by=by, note=note),
        lambda: queue.set_plan(said, rate=5),
        lambda: queue.schedules.add(said, Call(said, {}), shard_key=name, every=3600),
    ):
        with suppress(ConfigError):  # what no name may be at this place
            each()


def _workers(server: Server, queue: Queue, hostile: Sequence[str | bytes]) -> None:
    heard, counts = queue.stats().time, [0] * 16
    counts[bucket_of(1.0)] = 9
    with server.client() as raw:
        for at, name in enumerate(hostile):
            said = text(name)
            beat = Beat(
                is_end=at % 10 == 9, slots=8, busy=4.0, started=heard - 3600, pid=7, memory=2**28, memory_limit=None,
                version=said, host=said, longest_since=heard - 900, longest_message=said, longest_task=said,
                tasks={said: TaskCount(90, 9, 90.0, counts)}, tenants={name: TenantCount(90, 90.0, counts)},
                others=counts,
            )  # fmt: skip
            key = name if isinstance(name, bytes) else name.encode()
            raw.hset(queue.state.keys.workers, key, f"{round(heard * 1000)}|{spell_row(beat)}")
