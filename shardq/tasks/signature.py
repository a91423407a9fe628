"""The arguments and the result of a task's function, as its annotations say: checked once, where it is declared."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NotRequired, TypedDict, cast, get_args, get_origin, get_type_hints

import msgspec

from shardq.errors import ConfigError
from shardq.model.annotation import Annotation, converted
from shardq.model.unfit import Unfit, unknown_name

_MAP: Final = 0x80
"""MessagePack's mark of a map without members; with up to 15 of them it is greater by their number."""
_MAX_REPR: Final = 15
_TYPED_DICT: Final[Any] = TypedDict
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
        self.returns = Annotation(hints.pop("return", Any), f"what {where} returns")
        self.types: dict[str, Annotation] = {}
        self._required: set[str] = set()
        self._positional: list[str] = []
        if is_batch and len(parameters) != 1:
            raise ConfigError(f"{where} gets a batch, so it must have one parameter, a list")
        for each in parameters:
            kind = hints.get(each.name, Any)
            self._add(each, _member_of(kind, where) if is_batch else kind)
        self._known = frozenset(self.types)
        self._at_once = {name: kind.at_once for name, kind in self.types.items()}
        # If all arguments are there, and of these types, no more is looked at.
        self._usual = tuple(next(iter(kind.at_once), None) for kind in self.types.values())
        self._validated = {name for name, kind in self.types.items() if kind.validated is not None}
        hinted = {name: kind.hint for name, kind in self.types.items()}
        fields = {name: kind if name in self._required else NotRequired[kind] for name, kind in hinted.items()}
        self._arguments = _TYPED_DICT("Arguments", fields)
        self._decoder = msgspec.msgpack.Decoder(self._arguments)
        self._names = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])

    def _add(self, parameter: inspect.Parameter, kind: Any) -> None:
        name, where = parameter.name, f"the parameter {parameter.name!r} of {self._where}"
        if parameter.kind not in _KINDS:
            raise ConfigError(
                f"{where} cannot be sent by name: leave out *, ** and / in a task's parameters, and let decorators use "
                "functools.wraps"
            )
        self.types[name] = found = Annotation(kind, where)
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            self._positional.append(name)
        if parameter.default is inspect.Parameter.empty:
            self._required.add(name)
        else:
            _check_default(parameter.default, found, where)

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, without those that are left to their defaults.

        ConfigError if the function does not take them; CodecError for one that would not come back as it is.
        """
        if not kwargs and (*map(type, args),) == self._usual:
            return dict(zip(self._positional, args))  # noqa: B905 (they are as many)
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
        return self.sent(arguments)

    def sent(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return *arguments* as they are written. CodecError for one that would not come back as it is."""
        at_once = self._at_once
        for name, value in arguments.items():
            if type(value) not in at_once[name]:
                arguments[name] = self.types[name].sent(value, f"argument {name}")
        return arguments

    def decoded(self, raw: msgspec.Raw, mark: int, *, is_ours: bool = True) -> dict[str, Any]:
        """Return the arguments in a payload, each as its annotation says. *mark* is that of their map, if it is known.

        Those of another codec than MessagePack's are not *is_ours*. UnknownArguments for a name that is no parameter;
        WrongArguments if one does not fit, or is missing.
        """
        try:
            arguments: dict[str, Any] = self._decoder.decode(raw) if is_ours else self._converted(raw)
            if self._validated:
                self._validate(arguments)
        except (msgspec.MsgspecError, Unfit) as error:
            self._check_names(raw)
            raise WrongArguments(str(Unfit.of(error))) from None
        count = len(arguments)
        if mark != _MAP + count or count > _MAX_REPR:  # the mark of a small map says how many names were given
            self._check_names(raw)
        return arguments

    def _converted(self, raw: msgspec.Raw) -> dict[str, Any]:
        return cast("dict[str, Any]", converted(msgspec.msgpack.decode(raw), self._arguments))

    def _validate(self, arguments: dict[str, Any]) -> None:
        for name in self._validated & arguments.keys():
            try:
                arguments[name] = self.types[name].made(arguments[name])
            except Unfit as error:
                raise Unfit(f".{name}{error.path}", error.why) from None

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
    except NameError as error:
        raise ConfigError(unknown_name(f"an annotation of {where}", error)) from None
    except Exception as error:  # noqa: BLE001 (an annotation is any code)
        raise ConfigError(f"the annotations of {where} cannot be read ({type(error).__name__}: {error})") from None


def _member_of(kind: Any, where: str) -> Any:
    """The type of the members of a list type."""
    if kind is Any or kind is list:
        return Any
    if get_origin(kind) is not list:
        raise ConfigError(f"{where} gets a batch, so the type of its parameter must be list[...], not {kind!r}")
    return get_args(kind)[0]


def _check_default(default: Any, kind: Annotation, where: str) -> None:
    try:
        kind.check_default(default)
    except Exception as error:  # noqa: BLE001 (of any type's making)
        raise ConfigError(f"the default of {where} cannot be sent, or is not of its type: {error}") from None
