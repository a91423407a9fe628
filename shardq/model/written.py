"""The id of a message, as the call that wrote it returns it."""

from __future__ import annotations

from typing import ClassVar


class Written(str):
    """The id of a message, a `str` that also says whether its write stored the message.

    `is_new` is False if the message was there already: one with the same dedup key or unique key, which a replacement
    gives its payload.

    `Queue.write` returns one.
    """

    __slots__ = ()

    is_new: ClassVar[bool] = True


class Existing(Written):
    """The id of a message that was there already."""

    __slots__ = ()

    is_new: ClassVar[bool] = False
