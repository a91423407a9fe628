"""What a task's function takes and returns, as its annotations say: checked once, where it is declared."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NotRequired, TypedDict, cast, get_args, get_origin, get_type_hints

import msgspec
import msgspec.inspect

from shardq.errors import ConfigError

_MAP: Final = 0x80
"""MessagePack's mark of a map without members; with up to 15 of them it is so much more."""
_SMALL: Final = 15
_KINDS: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class WrongArguments(Exception):
    """Arguments that no function of this name takes: the text says which, and what is expected."""


class UnknownArguments(Exception):
    """Arguments that this release's function does not have yet, or no more."""


class Signature:
    """The parameters of *function*, and what it returns. ConfigError names what cannot be sent.

    If it *is_batch*, it has one parameter, a list, and a call has one member of that.
    """

    def __init__(self, function: Callable[..., Any], where: str, *, is_batch: bool = False) -> None:
        self._where = where
        hints = _hints(function, where)
        parameters = [*inspect.signature(function).parameters.values()]
        self.returns: Any = hints.pop("return", Any)
        self.types: dict[str, Any] = {}
        self._required: set[str] = set()
        self._positional: list[str] = []
        if is_batch and len(parameters) != 1:
            raise ConfigError(f"{where} gets a batch, so it must have one parameter, a list")
        for each in parameters:
            kind = hints.get(each.name, Any)
            self._add(each, _member_of(kind, where) if is_batch else kind)
        self._known = frozenset(self.types)
        fields = {name: kind if name in self._required else NotRequired[kind] for name, kind in self.types.items()}
        self._decoder = msgspec.msgpack.Decoder(TypedDict("Arguments", fields), strict=False)  # type: ignore[operator]
        self._names = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
        _check_type(self.returns, f"what {where} returns")

    def _add(self, parameter: inspect.Parameter, kind: Any) -> None:
        name, where = parameter.name, f"the parameter {parameter.name!r} of {self._where}"
        if parameter.kind not in _KINDS:
            raise ConfigError(f"{where} cannot be sent by name: leave out *, ** and / in a task's parameters")
        _check_type(kind, where)
        self.types[name] = kind
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            self._positional.append(name)
        if parameter.default is inspect.Parameter.empty:
            self._required.add(name)
        else:
            _check_default(parameter.default, kind, where)

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, without those that are left to their defaults. ConfigError."""
        if len(args) > len(self._positional):
            raise ConfigError(f"{self._where} takes {len(self._positional)} positional arguments, not {len(args)}")
        arguments = dict(zip(self._positional, args, strict=False))
        if kwargs:
            if wrong := sorted(set(kwargs) - self._known):
                raise ConfigError(f"{self._where} has no parameter {wrong[0]!r}")
            if twice := sorted(set(kwargs) & set(arguments)):
                raise ConfigError(f"{self._where} is given {twice[0]!r} twice")
            arguments |= kwargs
        if len(arguments) < len(self.types) and (missing := self._required - arguments.keys()):
            raise ConfigError(f"{self._where} lacks the argument {min(missing)!r}")
        return arguments

    def decoded(self, raw: msgspec.Raw, mark: int) -> dict[str, Any]:
        """Return the arguments in a payload, each as its annotation says. *mark* is that of their map, if it is known.

        UnknownArguments for a name that is no parameter; WrongArguments if one does not fit, or is missing.
        """
        try:
            arguments = cast("dict[str, Any]", self._decoder.decode(raw))
        except msgspec.MsgspecError as error:
            self._check_names(raw)
            raise WrongArguments(_readable(error)) from None
        count = len(arguments)
        if mark != _MAP + count or count > _SMALL:  # the mark of a small map says how many names were given
            self._check_names(raw)
        return arguments

    def _check_names(self, raw: msgspec.Raw) -> None:
        try:
            given = self._names.decode(raw)
        except msgspec.MsgspecError:
            raise WrongArguments("the arguments are no map of names") from None
        if not given.keys() <= self._known:
            raise UnknownArguments(min(given.keys() - self._known))


def _hints(function: Callable[..., Any], where: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except Exception as error:  # noqa: BLE001 (an annotation is any code)
        raise ConfigError(
            f"the annotations of {where} cannot be read ({type(error).__name__}: {error}): import what they name where "
            "the task is declared, not under TYPE_CHECKING"
        ) from None


def _member_of(kind: Any, where: str) -> Any:
    """The type of the members of a list type."""
    if kind is Any or kind is list:
        return Any
    if get_origin(kind) is not list:
        raise ConfigError(f"{where} gets a batch, so the type of its parameter must be list[...], not {kind!r}")
    return get_args(kind)[0]


def _check_type(kind: Any, where: str) -> None:
    """ConfigError for a type that msgspec cannot make from a message."""
    try:
        found = msgspec.inspect.type_info(kind)
    except Exception as error:  # noqa: BLE001 (msgspec raises TypeError and others)
        raise ConfigError(f"{where} has a type that cannot be sent: {error}") from None
    if (custom := _custom(found)) is not None:
        raise ConfigError(f"{where} has a type that cannot be sent: {custom!r}; use a dataclass, Struct or TypedDict")


def _custom(info: Any) -> Any:
    """Return a type within *info* that msgspec knows nothing of."""
    ahead, seen = [info], set()
    while ahead:
        each = ahead.pop()
        if isinstance(each, msgspec.inspect.CustomType):
            return each.cls
        if id(each) in seen or not isinstance(each, msgspec.Struct):
            continue
        seen.add(id(each))
        for value in (getattr(each, name) for name in each.__struct_fields__):
            ahead += value if isinstance(value, tuple) else [value]
    return None


def _check_default(default: Any, kind: Any, where: str) -> None:
    try:
        msgspec.convert(msgspec.to_builtins(default), kind, strict=False)
    except Exception as error:  # noqa: BLE001 (of any type's making)
        raise ConfigError(f"the default of {where} cannot be sent, or is not of its type: {error}") from None


def _readable(error: Exception) -> str:
    """What msgspec found, as `width: expected int, got str`. It has no part of the payload."""
    text, _, path = str(error).partition(" - at `$")
    text = text.replace("`", "")
    if text.startswith("Object missing required field"):
        return f"{text.rpartition(' ')[2]}: missing"
    where = path.rstrip("`").lstrip(".")
    return f"{where}: {text[:1].lower()}{text[1:]}" if where else text
