"""Payloads and results that Redis and its copies cannot be read from: a codec with a key for each tenant.

It needs `pip install cryptography`. AES-GCM also finds out whether somebody changed a body, or stored it under another
tenant's name. Keys come from where your secrets are. Without a tenant's key its messages are unreadable for ever.
Shard keys, headers and errors stay readable. Calls of tasks are decoded before a handler could name the tenant, so
encrypt an argument of theirs instead.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shardq import Client, CodecError
from shardq.codec import MsgpackCodec

NONCE = 12
current: ContextVar[str] = ContextVar("tenant")


@contextmanager
def tenant(name: str) -> Iterator[None]:
    """Encrypt and decrypt with the key of tenant *name* in this context."""
    token = current.set(name)
    try:
        yield
    finally:
        current.reset(token)


class Encrypted:
    """A body is a random nonce and what AES-GCM makes of MessagePack. The tenant is authenticated with it."""

    tag = "E"  # stored with each message, so that it is known which codec reads it

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = {name: AESGCM(key) for name, key in keys.items()}
        self._inner = MsgpackCodec()

    def encode(self, value: Any) -> bytes:
        """Return *value* as bytes that the context's tenant can read."""
        name = current.get()
        nonce = os.urandom(NONCE)
        return nonce + self._keys[name].encrypt(nonce, self._inner.encode(value), name.encode())

    def decode(self, body: bytes) -> Any:
        """Return the value; an error of AES-GCM if *body* is not of the context's tenant, or was changed."""
        name = current.get()  # never what a message says of itself
        return self._inner.decode(self._keys[name].decrypt(body[:NONCE], body[NONCE:], name.encode()))


keys = {"acme": AESGCM.generate_key(256), "globex": AESGCM.generate_key(256)}

with Client.from_url("shardq://embedded", codec=Encrypted(keys)) as client:
    jobs = client.queue("mails", streams=8, streams_per_shard=2)
    for name in keys:
        with tenant(name):
            jobs.write({"to": f"boss@{name}.example"}, shard_key=name)

    stored = [message.body or b"" for message in jobs.peek(payloads=True).messages]
    print("readable in Redis:", [body for body in stored if b"boss" in body])

    for delivery in sorted(jobs.read_many(10), key=lambda each: each.shard_key):
        with tenant(str(delivery.shard_key)):  # the key is the tenant's, whatever the body is
            print(delivery.shard_key, "is sent", delivery.payload)
            delivery.ack()

    # Somebody who may write to Redis cannot make acme's worker read what was encrypted for globex.
    with tenant("globex"):
        jobs.write({"to": "boss@globex.example"}, shard_key="acme")
    delivery = jobs.read()
    with tenant(str(delivery.shard_key)):
        try:
            print(delivery.payload)
        except CodecError as error:
            print("refused:", error)
            delivery.reject("its body is not of its tenant")
    print("dead letters:", jobs.stats().dead)

# Output:
# readable in Redis: []
# acme is sent {'to': 'boss@acme.example'}
# globex is sent {'to': 'boss@globex.example'}
# refused: cannot decode with codec 'E': it is damaged or of another format (InvalidTag): Delivery.body has the bytes
# dead letters: 1
