"""The calls of the verbs settle and extend: their words, and in which parts many deliveries are settled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar, cast

from shardq.model import Received
from shardq.model.call import called
from shardq.model.failed import NO_FAILURE, FailedTry, Problem, failed_try
from shardq.ops.queue.state import FewKeys, QueueState
from shardq.ops.queue.steps import Argument, Call, Sendable
from shardq.ops.queue.view import QueueView
from shardq.protocol.lease import place_of, token_argument
from shardq.protocol.packing import PACKED_KEYS, pack_words
from shardq.protocol.script import FUNCTION, HASH, Form

T = TypeVar("T")
MAX_ACKS_A_CALL = 200
"""Leases that one call acks, so that no script takes longer than a few ms."""

MAX_MOVES_A_CALL = 96
"""Leases that one call extends or ends in another way: most of these move a message."""


MAX_ERROR = 500

DUE: Final = "d"
"""The place of what lies in no stream."""


Part: TypeAlias = Sequence[tuple[str, str, Received]]
"""Deliveries that one call acks, sorted by place: the place, the entry id and the delivery of each."""


_PLACE = itemgetter(0)


def each_once(deliveries: Sequence[Received]) -> Sequence[Received]:
    """Return *deliveries* without those that come again: a lease is settled once, where it stands first."""
    first: dict[str, Received] = {}
    for delivery in deliveries:
        first.setdefault(delivery.token, delivery)
    return list(first.values())


def ack_parts(deliveries: Sequence[Received]) -> list[Part]:
    """Return *deliveries* in parts that one call each can ack. A delivery that comes twice counts once."""
    if len(deliveries) == 1:  # the common case
        place, entry, _ = deliveries[0].token.split(":", 2)
        return [((place, entry, deliveries[0]),)]
    split = [(*delivery.token.split(":", 2)[:2], delivery) for delivery in each_once(deliveries)]
    # By place, so that each part declares few streams.
    return list(parts_of(sorted(split, key=_PLACE), MAX_ACKS_A_CALL))  # type: ignore[arg-type] # a token has more than two parts


NOT_TRIED: Final = "0"
"""Tells `settle` that this is the first try for each of its messages: it stands in place of a list of ids."""


def settle_call(
    state: QueueState,
    kind: str,
    args: Sequence[Argument],
    streams: tuple[str, ...] = (),
    tried: str = NOT_TRIED,
    costs: str = "",
    few: FewKeys | None = None,
) -> Call:
    """Make the call that ends deliveries. *tried* says what is known of earlier tries, as the verb has it.

    With *few* it declares these keys alone.
    """
    head: tuple[Argument, ...] = kind, tried, state.view.config.parents, costs, state.client
    return Call.on(state.keys, "settle", (*head, *args), rest=streams, few=few)


def ack_call(state: QueueState, part: Part, repeated: bool = False) -> Call:
    """Make the call that acks *part*. If it is *repeated*, an earlier try of it may have happened."""
    tokens = [token_argument(delivery.token) for _, _, delivery in part]
    costs = costs_of([delivery for _, _, delivery in part])
    tried = _tried(state, part, repeated) if repeated or state.unsure else NOT_TRIED
    few = _few(state) if len(part) == 1 else None
    return settle_call(state, "a", tokens, _streams(state, map(_PLACE, part)), tried, costs, few)


def _few(state: QueueState) -> FewKeys | None:
    """Say that an ack of one delivery declares few keys; None if it declares all."""
    few = state.few["settle"]
    return None if few.lacking and few.lacked() else few


def _tried(state: QueueState, part: Part, repeated: bool) -> str:
    """Return the ids of the messages that may have been acked before, with "-" for each other one."""
    ids = [each.message_id if repeated or each.token in state.unsure else "-" for _, _, each in part]
    return " ".join(ids) if any(each != "-" for each in ids) else NOT_TRIED


def spelled_cost(seconds: float, *, is_told: bool, ran: float | None = None) -> str:
    """Return what the work on a message costs as the verbs read it, in ms.

    The server believes a measured time only as far as the lease is old. A cost that the consumer told (*is_told*)
    stands as it is. For how long the handler *ran* in all stands behind it for the journal, where that is another time.

    >>> spelled_cost(0.0125, is_told=False), spelled_cost(60, is_told=True), spelled_cost(1, is_told=False, ran=3)
    ('12.5', '=60000.0', '1000.0~3000.0')
    """
    cost = f"{'=' if is_told else ''}{seconds * 1000:.1f}"
    return cost if ran is None else f"{cost}~{ran * 1000:.1f}"


def lone_ack(state: QueueState, part: Part, until: float) -> Sendable:
    """Return the call of the only ack in *part*."""
    delivery = part[0][2]
    is_unsure = state.unsure and delivery.token in state.unsure  # then it must say that it is a repetition
    return ack_call(state, part) if is_unsure else LoneAck(state, delivery, until)


class LoneAck:
    """The bytes of a call that acks one delivery (see `Sendable`). The `call` itself is made if it is needed."""

    __slots__ = ("_call", "_delivery", "_few", "_state", "key", "until")

    on_send = None
    replicas = 0

    def __init__(self, state: QueueState, delivery: Received, until: float) -> None:
        self._state, self._delivery, self.until = state, delivery, until
        self.key = state.keys.meta
        self._few = _few(state)
        self._call: Call | None = None

    def request(self, form: Form) -> bytes:
        """Return the bytes of the command in this form."""
        state, delivery = self._state, self._delivery
        token = delivery.token
        place = token[: token.index(":")]
        has_stream = place != DUE
        view = state.view
        few = self._few
        words = view.words_cache.get(("ack", has_stream, few)) or _words(state, view, has_stream, few)
        stream = PACKED_KEYS[state.names[place]] if has_stream else b""
        raw, client = token.encode(errors="surrogateescape"), state.client.encode()
        # The order of a call of settle: KEYS (the queue's, then the stream), kind, earlier tries, parents, costs,
        # client, then the tokens. `settle_call` makes the same for any call.
        return b"%b%b%b$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
            words.start_by_hash if form is HASH else words.start,
            stream,
            words.before,
            len(delivery.cost),
            delivery.cost.encode(),
            len(client),
            client,
            len(raw),
            raw,
        )

    @property
    def sendable(self) -> LoneAck:
        """Itself."""
        return self

    @property
    def tokens(self) -> tuple[str]:
        """The lease token."""
        return (self._delivery.token,)

    @property
    def call(self) -> Call:
        """The call, always the same one. It is no repetition, whatever is unsure by now."""
        if self._call is None:
            state, token = self._state, self._delivery.token
            streams = _streams(state, (place_of(token),))
            costs = costs_of((self._delivery,))
            self._call = settle_call(state, "a", [token_argument(token)], streams, costs=costs, few=self._few)
            self._call.until = self.until
        return self._call


class AckWords(NamedTuple):
    """The words of all acks of one delivery that name a stream, or of all that name none.

    `start` comes first, or `start_by_hash` where the script is sent by its hash; then the stream's key, and `before`.
    """

    start: bytes
    start_by_hash: bytes
    before: bytes


def _words(state: QueueState, view: QueueView, has_stream: bool, few: FewKeys | None) -> AckWords:
    """Return these words. They are made once for each view."""
    like = settle_call(state, "a", [""], state.declared(["0"]) if has_stream else (), few=few)
    count, named = 3 + len(like.keys) + len(like.args), like.keys[: len(like.keys) - has_stream]
    start, start_by_hash = [
        b"*%d\r\n%b" % (count, pack_words((*like.script.command(form), len(like.keys), *named)))
        for form in (FUNCTION, HASH)
    ]
    words = view.words_cache["ack", has_stream, few] = AckWords(start, start_by_hash, pack_words(like.args[:3]))
    return words


def costs_of(part: Sequence[Received]) -> str:
    """Return what the work on each of these costs, as the verbs read it: "12.5,-,3.0"; "" if none costs anything."""
    costs = [each.cost for each in part]
    return ",".join([cost or "-" for cost in costs]) if any(costs) else ""


Terms: TypeAlias = Mapping[str, tuple[int, str, str]]
"""For each lease token the delay in ms, the error or reason, and how the try failed as the verb reads it."""

Problems: TypeAlias = Problem | Sequence[Problem]


def terms_of(
    state: QueueState, deliveries: Sequence[Received], delay: float | Sequence[float], error: Problems
) -> Terms:
    """Return the terms of each delivery. *delay* is in seconds; both are one for all, or one for each.

    For a delivery that comes twice the first terms count.
    """
    delays = repeat(delay) if isinstance(delay, (int, float)) else delay
    is_one = not issubclass(type(error), (list, tuple))
    each_one = repeat(cast("Problem", error)) if is_one else cast("Sequence[Problem]", error)
    terms: dict[str, tuple[int, str, str]] = {}
    for delivery, seconds, each in zip(deliveries, delays, each_one, strict=False):
        if delivery.token not in terms:
            failed = failed_try("error", each)
            terms[delivery.token] = round(seconds * 1000), _one_line(failed.text), spelled_try(state, delivery, failed)
    return terms


UNKNOWN_TASK: Final = "?"
"""Stands for the task of a message whose payload is not at hand: the server looks at it."""
MAX_TRACED: Final = 200
TRACED_FOR: Final = 60.0
"""Seconds for which the frames of a traceback are not sent again."""


def spelled_try(state: QueueState, delivery: Received, failed: FailedTry) -> str:
    """Return how a try failed as the verb `settle` reads it: "task|class|reason", then the frames, in lines.

    It is '' if nothing is said: then the message is only given back.
    """
    if failed == NO_FAILURE:
        return ""
    task = called(delivery.tag, delivery.body) if delivery.body else UNKNOWN_TASK
    head = f"{task}|{failed.error_type}|{failed.reason.replace(' ', '-')}"
    return (
        f"{head}\n{failed.frames}"
        if failed.frames and _is_new(state, f"{head} {failed.frames.rpartition(chr(10))[2]}")
        else head
    )


def _is_new(state: QueueState, key: str) -> bool:
    """Whether the traceback with this *key*, its group and its last frame, was not sent in the last minute."""
    now = state.clock.monotonic()
    if now < state.traced.get(key, now):
        return False
    if len(state.traced) >= MAX_TRACED:
        state.traced.clear()
    state.traced[key] = now + TRACED_FOR
    return True


UNCOUNTED: Final = "-"
"""In place of `max_deliveries` where deliveries are given back uncounted."""


def nack_call(
    state: QueueState, max_deliveries: int | Literal["-"], terms: Terms
) -> Callable[[Sequence[Received], str], Call]:
    """Return what makes the calls that give deliveries back; with *max_deliveries* 0 they become dead letters.

    Each call has a number, as `spelled` spells it: a second time it would find no lease.
    """
    kind = {0: "r", UNCOUNTED: "u"}.get(max_deliveries, "n")

    def call(part: Sequence[Received], number: str) -> Call:
        words: list[Argument] = []
        for delivery in part:
            words += (token_argument(delivery.token), *terms[delivery.token])
        streams = _streams(state, (place_of(each.token) for each in part))
        return settle_call(state, kind, words, streams, number, costs_of(part))

    return call


def extend_call(state: QueueState, part: Sequence[Received], duration: float | None, repeated: bool = False) -> Call:
    """Make the call that lets these leases end *duration* seconds from now, or leaves them as they are.

    One that is *repeated* charges nothing: the first try may have.
    """
    tokens = (token_argument(delivery.token) for delivery in part)
    visibility: Argument = "" if duration is None else round(duration * 1000)
    costs, client = "" if repeated else costs_of(part), state.client if state.config.journal else ""
    return Call.on(state.keys, "extend", (visibility, costs, client, *tokens))


def _streams(state: QueueState, places: Iterable[str]) -> tuple[str, ...]:
    """Return the streams in which messages lie that lie at these places."""
    names = state.names
    return tuple([names[place] for place in dict.fromkeys(places) if place != DUE])


def _one_line(text: str) -> str:
    """Return an error or reason as it is stored: one line of at most MAX_ERROR characters."""
    line = " ".join(str(text).split())
    # Errors of users may hold lone surrogates, which cannot be sent: an error must not make its own nack fail.
    return line[:MAX_ERROR].encode(errors="replace").decode(errors="replace")


def parts_of(deliveries: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Return the parts of *deliveries* that one call each can settle, with *most* in each."""
    for start in range(0, len(deliveries), most):
        yield deliveries[start : start + most]
