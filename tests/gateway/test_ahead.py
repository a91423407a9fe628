"""How far a connection runs ahead of its readers: a little, a large message whole, and never beyond the memory."""

from __future__ import annotations

import pytest

from shardq.gateway.ahead import MAX_BYTES, MIN_BYTES, PATIENCE, Ahead
from shardq.gateway.memory import TURN, MemoryBudget, MemoryShare

KIB, MIB = 1024, 1024 * 1024


class Client:
    """One that sends as much as it may; its connection counts in *share*. `sent` counts what came in all."""

    def __init__(self, share: MemoryShare) -> None:
        self.sent = self.resumed = 0
        self.ahead = Ahead(self.resume)
        self.ahead.begin(self, share)

        self.ahead.may_go_on(0.0)  # from now on

    def resume(self) -> None:
        self.resumed += 1

    def send(self, most: int = 1 << 40) -> int:
        """Send what may be sent now, and at most *most*; how much that was."""
        if (size := max(0, min(most, self.ahead.allowed))) > 0:
            self.ahead.passed(size)
        self.sent += size
        return size

    def send_whole(self, size: int, now: float = 0.0) -> bool:
        """Send a message of *size* bytes, by as many grants as it takes. Return whether it could be sent whole."""
        self.ahead.asks(self)
        while self.sent < size:
            if not self.send(size - self.sent) and not self.ahead.may_go_on(now):
                return False
        return True

    def is_read(self, size: int) -> None:
        self.ahead.got(self, size)
        self.sent = 0


@pytest.fixture
def memory() -> MemoryBudget:
    return MemoryBudget(32 * MIB)


def test_nothing_comes_while_nobody_reads(memory: MemoryBudget) -> None:
    client = Client(memory.share("t"))
    assert client.send() == 0
    client.ahead.asks(client)
    assert client.resumed == 1
    assert client.send() == MIN_BYTES
    client.ahead.got(client, 100)
    assert client.send() == 0


def test_one_that_nobody_reads_from_may_send_a_chunk_now_and_then(memory: MemoryBudget) -> None:
    client = Client(memory.share("t"))
    for number in range(1, 10):
        assert not client.ahead.may_go_on((number - 0.5) * PATIENCE)
        assert client.ahead.may_go_on(number * PATIENCE)
        assert (client.send(), client.send()) == (MAX_BYTES, 0)


def test_who_sends_tiny_messages_is_a_few_kilobytes_ahead(memory: MemoryBudget) -> None:
    client = Client(memory.share("t"))
    for _ in range(1000):
        client.ahead.asks(client)
        client.send()
        client.ahead.got(client, 20)
    assert MIN_BYTES <= client.sent <= MIN_BYTES + 1000 * (20 + 40)


@pytest.mark.parametrize("size", [9 * KIB, 100 * KIB, MIB, 16 * MIB])
def test_a_large_message_comes_whole_and_counts_while_it_does(memory: MemoryBudget, size: int) -> None:
    share = memory.share("t")
    client = Client(share)
    memory.most = 1 << 40
    assert client.send_whole(size)
    assert share.used >= size - MIN_BYTES
    assert client.sent <= size + MAX_BYTES
    client.is_read(size)
    assert share.used == memory.used == 0


def test_a_connection_with_messages_of_one_size_has_two_of_them_without_a_grant(memory: MemoryBudget) -> None:
    client = Client(memory.share("t"))
    client.send_whole(50 * KIB)
    client.is_read(50 * KIB)
    client.ahead.asks(client)
    assert client.send() >= 50 * KIB


def test_parts_of_large_messages_stay_within_the_share_and_get_whole_one_after_the_other(memory: MemoryBudget) -> None:
    share = memory.share("t")
    clients = [Client(share) for _ in range(100)]
    whole = [client for client in clients if client.send_whole(MIB)]
    assert 0 < len(whole) < 20
    assert share.used <= memory.most / 4 + 2 * MIB
    while whole:
        for client in whole:
            client.is_read(MIB)
            clients.remove(client)
        whole = [client for client in clients if client.send_whole(MIB)]
    assert not clients
    assert memory.used == 0


def test_one_that_does_not_send_its_rest_holds_the_others_up_for_one_turn(memory: MemoryBudget) -> None:
    share = memory.share("t")
    share.take_part(memory.most)
    stuck, other = Client(share), Client(share)
    assert stuck.send_whole(MIB // 2, now=0.0)
    assert not other.send_whole(MIB, now=TURN / 2)
    assert other.send_whole(MIB, now=TURN)
    assert not stuck.send_whole(MIB, now=TURN + 1)
    other.is_read(MIB)
    assert stuck.send_whole(MIB, now=TURN + 1)


def test_messages_that_cannot_be_stored_let_no_others_get_whole_once_the_memory_is_full(memory: MemoryBudget) -> None:
    shares = [memory.share(str(number)) for number in range(8)]
    clients = [Client(share) for share in shares for _ in range(64)]
    for client in clients:
        if client.send_whole(MIB):
            client.is_read(MIB)
            shares[clients.index(client) // 64].take(MIB)  # it waits to be stored
    # Each token may have one message in any case, and each connection the beginning of one.
    assert memory.most / 2 < memory.used <= memory.most + len(shares) * MIB + len(clients) * 2 * MIN_BYTES
    newcomer = Client(memory.share("new"))
    assert newcomer.send_whole(MIB)


def test_pings_and_the_like_do_not_make_a_connection_slow_for_ever(memory: MemoryBudget) -> None:
    """They are counted as a part of a message, which no message will ever take away."""
    client = Client(memory.share("t"))
    client.ahead.asks(client)
    while client.send(17):
        pass
    client.ahead.may_go_on(0.0)
    client.send(100)
    client.is_read(100)
    client.ahead.asks(client)
    assert client.ahead.allowed >= MIN_BYTES - 100


def test_what_a_connection_held_counts_no_more_when_its_call_ends(memory: MemoryBudget) -> None:
    client = Client(memory.share("t"))
    client.send_whole(MIB)
    client.ahead.end(client)
    assert memory.used == 0
    assert client.ahead.allowed == MAX_BYTES  # what is left of the call goes to grpc, which drops it
