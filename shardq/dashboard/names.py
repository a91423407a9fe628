"""Shard keys as they stand in addresses, and as they are shown. They may hold any bytes, and be 1,024 of them."""

from __future__ import annotations

import base64
import re
from typing import Final

from shardq.dashboard.scene import NotThere
from shardq.errors import ConfigError
from shardq.outlook.names import name_of
from shardq.protocol.bodies import text_or_bytes
from shardq.sharding import key_bytes

AS_BYTES: Final = "bytes:"
"""How the address of a shard key begins that is no text; behind it stand its bytes in hexadecimal."""
MAX_SHOWN: Final = 100
"""Letters of a name that is shown."""
_HEX: Final = re.compile(r"(?:[0-9a-f]{2}){1,1024}")


def address_of(key: str | bytes) -> str:
    r"""Return a shard key as the text that stands in an address, so that `key_of` finds it again.

    >>> address_of("acme"), address_of(b"\xff"), address_of("bytes:ff")
    ('acme', 'bytes:ff', 'bytes:62797465733a6666')
    """
    if isinstance(key, str) and not key.startswith(AS_BYTES):
        return key
    return AS_BYTES + key_bytes(key).hex()


def key_of(address: str) -> str | bytes:
    r"""Return the shard key that an address names. NotThere if it can be none.

    >>> key_of("acme"), key_of("bytes:ff"), key_of("bytes:62797465733a6666")
    ('acme', b'\xff', 'bytes:ff')
    """
    rest = address.removeprefix(AS_BYTES)
    try:
        raw = bytes.fromhex(rest) if rest != address and _HEX.fullmatch(rest) else address
        return text_or_bytes(key_bytes(raw))
    except ConfigError:
        raise NotThere(f"There is no tenant {name_of(address)}.") from None


def shown(key: str | bytes) -> str:
    """Return a shard key for display: letters that would turn or hide others are escaped, and long ones are cut.

    >>> shown("acme"), shown(" ")
    ('acme', "' '")
    """
    text = name_of(key, MAX_SHOWN)
    return text if text == text.strip() else f"'{text}'"


def args_of(key: str | bytes) -> dict[str, str]:
    r"""Return the arguments by which an action knows its tenant.

    >>> args_of("acme"), args_of(b"\xff")
    ({'shard_key': 'acme'}, {'shard_key_base64': '/w=='})
    """
    if isinstance(key, str):
        return {"shard_key": key}
    return {"shard_key_base64": base64.b64encode(key).decode()}
