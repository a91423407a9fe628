"""Look at dead letters."""

from __future__ import annotations

from shardq.model import PeekedMessage
from shardq.ops.inspect.dead_letters import dead_letters
from shardq.ops.inspect.page import CALLS, MESSAGES_A_CALL, Point, WantedMessages
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.protocol.standing import peeked_letter
from shardq.sharding import key_bytes


def dead(state: QueueState, wanted: WantedMessages, point: Point) -> Op[tuple[list[PeekedMessage], Point | None]]:
    """Return dead letters, oldest first, and the point behind them; None if that is all."""
    found: list[PeekedMessage] = []
    for _ in range(CALLS):
        after = point.member.decode(errors="replace") or "-"
        # The time that is left of the whole look, since each page waits by itself.
        letters = yield from dead_letters(
            state, MESSAGES_A_CALL, after, max(0.0, wanted.until - state.clock.monotonic())
        )
        for letter in letters:
            # Before it is judged: the next page continues behind letters that are not wanted, too.
            point = Point("dead", member=letter.entry_id.encode())
            message = peeked_letter(letter, has_payload=wanted.payloads)
            if _is_wanted(message, wanted):
                found.append(message)
                if len(found) == wanted.count:
                    return found, point
        if len(letters) < MESSAGES_A_CALL:
            return found, None
    return found, point


def _is_wanted(message: PeekedMessage, wanted: WantedMessages) -> bool:
    if wanted.shard_key and (not message.shard_key or key_bytes(message.shard_key) != wanted.shard_key):
        return False
    return wanted.stream is None or message.message_id.endswith(f"-{wanted.stream}")
