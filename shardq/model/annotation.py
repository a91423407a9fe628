"""The type of an argument or a result: a value comes back as it was sent, or is refused where it is written.

Type checkers take a datetime for a date, True for an int, and the child of a dataclass for its parent; MessagePack does
not know them apart. So what is more than a plain value is encoded and decoded at once, as its reader will do it, and
both are compared.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any, Final
from uuid import UUID

import msgspec
import msgspec.inspect as info

from shardq.codec import ENCODER, Codecs, MsgpackCodec, refusal
from shardq.errors import CodecError, ConfigError
from shardq.model.difference import difference
from shardq.model.unfit import Unfit, unknown_name
from shardq.model.validated import Validated, is_pydantic_s, names_in

_PLAIN: Final = {
    info.BoolType: bool,
    info.BytesType: bytes,
    info.FloatType: float,
    info.IntType: int,
    info.NoneType: NoneType,
    info.StrType: str,
}
_COME_BACK: Final = _PLAIN | {
    info.DateType: date,
    info.DecimalType: Decimal,
    info.TimeDeltaType: timedelta,
    info.UUIDType: UUID,
}
"""The types whose values come back as they were sent, by what msgspec calls them."""


class Annotation:
    """The rules of the annotation *kind* for values. ConfigError, which names *where* it is, if none can be sent."""

    def __init__(self, kind: Any, where: str) -> None:
        self.where = where
        self.validated = Validated(kind, where) if is_pydantic_s(kind) else None
        """Makes its values, if pydantic does."""
        self.hint: Any = kind if self.validated is None else Any
        """The type by which msgspec reads a body; `made` makes the value of that."""
        found = _type_info(self.hint, where)
        self._names = names_in(kind)
        self._decoder = msgspec.msgpack.Decoder(self.hint)
        self.at_once = frozenset[type]() if self.validated else frozenset(_at_once(found))
        """The types whose values all come back as they were sent."""

    def sent(self, value: Any, place: str) -> Any:
        """Return *value* as it is written. CodecError, naming *place* and type, if it would not come back as it is."""
        if type(value) in self.at_once:
            return value
        if self.validated is not None:
            return self.validated.sent(value, place)
        try:
            found = difference(value, self._decoder.decode(ENCODER.encode(value)), self._names)
        except msgspec.ValidationError as error:
            raise CodecError(f"{place}{Unfit.of(error).told_of(value)}") from None
        except Exception as error:  # noqa: BLE001 (of any type's making, and RecursionError)
            raise CodecError(refusal(place, value, error, names=self._names)) from None
        if found is not None:
            raise CodecError(f"{place}{found}: annotate what is sent, or send what the annotation says")
        return value

    def made(self, value: Any) -> Any:
        """Return the value of what msgspec made as `hint`. Unfit if it is none."""
        return value if self.validated is None else self.validated.made(value)

    def received(self, codecs: Codecs, tag: str, body: bytes) -> Any:
        """Return the value in a stored *body*. CodecError if it cannot be decoded, Unfit if it is not of the type."""
        if tag != MsgpackCodec.tag:
            return self.made(converted(codecs.decode(tag, body), self.hint))
        try:
            found = self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise Unfit.of(error) from None
        except Exception:  # noqa: BLE001 (the codec says what is wrong with it)
            found = codecs.decode(tag, body)
        return self.made(found)

    def check_default(self, default: Any) -> None:
        """Raise an error unless *default* is of the type. It is not written, so it may be of another form of it."""
        if self.validated is None:
            msgspec.convert(msgspec.to_builtins(default), self.hint)
        else:
            self.validated.sent(default, "it")


def converted(value: Any, kind: Any) -> Any:
    """Return what another codec than MessagePack's has decoded as *kind*. JSON has only text as keys. Unfit."""
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise Unfit.of(error) from None


def _type_info(kind: Any, where: str) -> info.Type:
    """Return what msgspec knows of a type. ConfigError if it cannot make it from a message."""
    try:
        msgspec.msgpack.Decoder(kind)
        found = info.type_info(kind)
    except NameError as error:
        raise ConfigError(unknown_name(f"the type of {where}", error)) from None
    except Exception as error:  # noqa: BLE001 (msgspec raises TypeError and others)
        text = str(error)
        if text.startswith("Type unions"):
            text = f"nothing tells which member of its union comes back: {text}"
        raise ConfigError(f"{where} has a type that cannot be sent: {text}") from None
    if (custom := _custom(found)) is not None:
        raise ConfigError(f"{where} has a type that cannot be sent: {custom!r}; use a dataclass, Struct or TypedDict")
    return found


def _custom(found: Any) -> Any:
    """Return a type within *found* that msgspec knows nothing of."""
    ahead, seen = [found], set()
    while ahead:
        each = ahead.pop()
        if isinstance(each, info.CustomType):
            return each.cls
        if id(each) in seen or not isinstance(each, msgspec.Struct):
            continue
        seen.add(id(each))
        for value in (getattr(each, name) for name in each.__struct_fields__):
            ahead += value if isinstance(value, tuple) else [value]
    return None


def _at_once(found: info.Type) -> Collection[type]:
    """Return the types whose values all come back: those without constraints."""
    members = found.types if isinstance(found, info.UnionType) else (found,)
    if any(isinstance(each, info.AnyType) for each in members):
        return _PLAIN.values()
    free = (each for each in members if all(getattr(each, name) is None for name in each.__struct_fields__))
    return [_COME_BACK[type(each)] for each in free if type(each) in _COME_BACK]


ANY_VALUE: Final = Annotation(Any, "a value")
"""A value without an annotation comes back as it was sent if MessagePack can say it."""
