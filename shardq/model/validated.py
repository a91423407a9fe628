"""Models of pydantic as arguments and results. shardq does not depend on it: nothing is imported unless it is there.

An annotation that has a model of pydantic, or one of its dataclasses or types, is pydantic's as a whole. The text of a
value is pydantic's JSON of it, so validators see what they see of a request, and strict models take it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final, get_args, get_type_hints

import msgspec

from shardq.errors import CodecError, ConfigError
from shardq.model.difference import Difference, difference
from shardq.model.unfit import Unfit, unknown_name

_MARKS: Final = ("__pydantic_validator__", "__get_pydantic_core_schema__")
_FORMS: Final = (
    {"by_alias": True, "exclude_unset": True},
    {"by_alias": True, "exclude_unset": False},
    {"by_alias": False, "exclude_unset": False},
)
"""The forms in which a model may be written, the best first: the fields that were set; all, if a default is new each
time; by the names, if aliases for reading and writing differ.
"""


def is_pydantic_s(kind: Any) -> bool:
    """Return whether pydantic has a part in the type *kind*."""
    return "pydantic" in sys.modules and any(map(_is_marked, _types_in(kind)))


def names_in(kind: Any) -> frozenset[str]:
    """Return the names of all fields in the type *kind*: keys that are among them are no secret of a payload."""
    return frozenset(name for each in _types_in(kind) for name in (*_fields_in(each), *_aliases_of(each)))


class Validated:
    """Makes values of the type *kind* by pydantic. ConfigError, in which *where* says whose it is, if it cannot."""

    def __init__(self, kind: Any, where: str) -> None:
        from pydantic import TypeAdapter, ValidationError

        self._names, self._error = names_in(kind), ValidationError
        try:
            self._adapter: Any = TypeAdapter(kind)
            if not getattr(self._adapter, "pydantic_complete", True):
                self._adapter.rebuild(raise_errors=True)
        except NameError as error:
            raise ConfigError(unknown_name(f"the type of {where}", error)) from None
        except Exception as error:  # noqa: BLE001 (an annotation is any code)
            text = str(error).partition("\n")[0]
            raise ConfigError(f"{where} has a type that pydantic cannot send: {text}") from None
        self._both: dict[str, bool] = {"by_alias": True, "by_name": True} if _takes_names(self._adapter) else {}

    def sent(self, value: Any, place: str) -> Any:
        """Return what is written of *value*: the first form that comes back as it was sent. CodecError if none does."""
        found: Difference | Unfit | Exception | None = None
        for form in _FORMS:
            try:
                sent = self._adapter.dump_python(value, mode="json", round_trip=True, warnings=False, **form)
                differs = difference(value, self.made(sent), self._names)
            except Exception as error:  # noqa: BLE001 (of any validator's making)
                found = found or error
                continue
            if differs is None:
                return sent
            found = found or differs
        if isinstance(found, Unfit):
            raise CodecError(f"{place}{found.told_of(value)}")
        if isinstance(found, Difference):
            raise CodecError(f"{place}{found}: annotate what is sent; a validator must not change what it has made")
        raise CodecError(f"{place}: pydantic cannot encode it ({type(found).__name__})")

    def made(self, value: Any) -> Any:
        """Return the value of what was written, or what another program wrote. Unfit if it is none."""
        try:
            return self._adapter.validate_json(msgspec.json.encode(value), **self._both)
        except self._error as error:
            raise self._unfit(error.errors(include_url=False, include_context=False, include_input=False)[0]) from None

    def _unfit(self, error: Any) -> Unfit:
        """Its message may quote the payload, and so may the path; its type does not."""
        steps = (f"[{each}]" if isinstance(each, int) else self._step(each) for each in error["loc"])
        return Unfit("".join(steps), error["type"])

    def _step(self, name: str) -> str:
        return f".{name}" if name in self._names else "[...]"


def _takes_names(adapter: Any) -> bool:
    """Return whether this release of pydantic takes names beside aliases."""
    return "by_name" in adapter.validate_json.__kwdefaults__


def _is_marked(kind: Any) -> bool:
    return any(hasattr(kind, each) for each in _MARKS) or type(kind).__module__.partition(".")[0] == "pydantic"


def _types_in(kind: Any) -> Iterator[Any]:
    """Yield *kind*, its parts, and the types of fields."""
    ahead, seen = [kind], dict[int, Any]()
    while ahead:
        each = ahead.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            yield each
            ahead += [*get_args(each), *getattr(each, "__metadata__", ()), *_fields_in(each).values()]
            ahead += [getattr(each, name) for name in ("__supertype__", "__value__") if hasattr(each, name)]


def _fields_in(kind: Any) -> dict[str, Any]:
    if not isinstance(kind, type):
        return {}
    try:
        return get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001 (whoever makes values of the type says what is wrong with it)
        return {}


def _aliases_of(kind: Any) -> Iterator[str]:
    for field in getattr(kind, "__pydantic_fields__", {}).values():
        yield from (str(each) for each in (field.alias, field.validation_alias, field.serialization_alias))
