"""The examples of docs/spark.md, "Payloads that do not fit", which the tests of each mode try."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from shardq import Client
from shardq.client import Queue
from shardq.codec import JsonCodec
from tests.house.doc_blocks import ROOT

PAGE = (ROOT / "docs" / "spark.md").read_text()


class Example(NamedTuple):
    """A payload as it lies in Redis, what PERMISSIVE makes of it, and why it does not fit."""

    tag: str
    body: bytes
    wanted: Any
    reason: str


def schema() -> str:
    """The type of the payload in the examples."""
    [found] = re.findall(r"These are examples for `payload (struct<.*>)`", PAGE)
    return str(found)


OTHERS = {"bytes": ("b", b"\x00bytes"), "broken JSON": ("j", b'{"a": 1')}


def examples() -> list[Example]:
    """The lines of the table; those that are JSON in MessagePack, too."""
    rows = re.findall(r"^\| (.+?) \| `(\w+)` \| `(payload.*)` \|$", PAGE, re.MULTILINE)
    found = []
    for text, null, reason in rows:
        if text in OTHERS:
            tag, body = OTHERS[text]
            found.append(Example(tag, body, None, reason))
            continue
        value = msgspec.json.decode(text.strip("`"))
        wanted = None if null == "payload" else dict.fromkeys("abcef") | value | {null: None}
        found.append(Example("j", msgspec.json.encode(value), wanted, reason))
        found.append(Example("m", msgspec.msgpack.encode(value), wanted, reason))
    return found


def record(example: Example) -> str:
    """What the column of corrupt records has of an example."""
    if example.tag == "m":
        return msgspec.json.encode(msgspec.msgpack.decode(example.body)).decode()
    return example.body.decode()


class AsItIs(JsonCodec):
    """Stores text as JSON without a look at it."""

    def encode(self, value: Any) -> bytes:
        """Return the text."""
        return str(value).encode()


def fill(url: str, queue: Queue, some: list[Example]) -> list[str]:
    """Write the payloads of examples, and return the ids of the messages."""
    with Client.from_url(url, codec=AsItIs()) as as_json:
        json = as_json.queue(queue.name)
        return [
            json.write(each.body.decode(), shard_key="t")
            if each.tag == "j"
            else queue.write(each.body if each.tag == "b" else msgspec.msgpack.decode(each.body), shard_key="t")
            for each in some
        ]
