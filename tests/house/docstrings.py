"""The examples of the API reference, in docstrings of public names: found, and run as a reader would type them.

They begin with ">>>", as in an interactive session. An example has the names of its module (`shardq`, `shardq.tasks`)
and those that the example of its class made before it; `await` may stand outside of a function. What is printed is
compared with what the docstring shows, where "..." stands for anything. Each begins with an empty server and an empty
directory.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import griffe

from shardq.embedded import EmbeddedServer
from tests.house import api
from tests.house.doc_blocks import URL

PARSER: Final = doctest.DocTestParser()
COMPARED: Final = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
"""How what is printed is compared: "..." stands for anything, and blanks and ends of lines are all alike."""


@dataclass(frozen=True)
class Shown:
    """The example of a public name: `before` are the examples whose names it uses."""

    name: str
    module: str
    text: str
    before: str = ""


def shown(module: str) -> Iterator[Shown]:
    """The docstrings of a module's public names that have an example."""
    for each in api.names(module):
        of_class = api.text(each)
        found = {f"{module}.{each.name}": Shown(f"{module}.{each.name}", module, of_class)}
        if isinstance(each, griffe.Class):
            for member in api.members(each):
                name = f"{module}.{each.name}.{member.name}"
                found[name] = Shown(name, module, api.text(member), of_class)
        yield from (one for one in found.values() if has_example(one.text))


def has_example(text: str) -> bool:
    """Return whether a docstring has one."""
    return bool(PARSER.get_examples(text))


def code(text: str) -> str:
    """Return the code of the examples of a docstring."""
    return "".join(each.source for each in PARSER.get_examples(text))


def run(example: Shown, url: str, **given: object) -> Iterator[str]:
    """Run an example on the server at *url*, with the names *given*. Yield what differs from what it shows."""
    names = _names(example) | given
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), asyncio.Runner() as runner:
        try:
            for text in (example.before, example.text):
                for each in PARSER.get_examples(text):
                    got = _outcome(each, names, url, runner)
                    wanted = each.want if each.exc_msg is None else each.exc_msg
                    if not doctest.OutputChecker().check_output(wanted, got, COMPARED):
                        yield f"{example.name}:\n{each.source}shows {wanted!r}, but gives {got!r}"
        finally:
            for value in reversed(names.values()):
                _close(value, runner)


def _names(example: Shown) -> dict[str, Any]:
    """The names of its module that an example uses; others may need what this machine lacks."""
    module, used = import_module(example.module), {*re.findall(r"\w+", code(example.before + "\n" + example.text))}
    public = {each.name for each in api.names(example.module)}
    return {"__name__": "__main__"} | {name: getattr(module, name) for name in public & used if hasattr(module, name)}


def _close(value: object, runner: asyncio.Runner) -> None:
    """Close what an example has made."""
    if type(value).__module__.startswith("shardq."):
        if hasattr(value, "aclose"):
            runner.run(value.aclose())
        elif hasattr(value, "close"):
            value.close()
        elif isinstance(value, EmbeddedServer):
            value.stop()


def _outcome(each: doctest.Example, names: dict[str, Any], url: str, runner: asyncio.Runner) -> str:
    """Return what one statement prints, or the last line of its traceback."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            source = compile(
                each.source.replace(URL, url),
                "<docstring>",
                "single",
                ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
                dont_inherit=True,
            )
            result = eval(source, names)  # noqa: S307 - the project's own docstrings
            if source.co_flags & inspect.CO_COROUTINE:
                runner.run(result)
        except Exception as error:  # noqa: BLE001 - an example may show any
            if each.exc_msg is None:
                return traceback.format_exc()
            return traceback.format_exception_only(error)[-1]
    return printed.getvalue()


def run_all(module: str, fresh: Callable[[], str], **given: object) -> list[str]:
    """Run the examples of a module, each on the server whose URL *fresh* returns. Return what differs."""
    return [each for example in shown(module) for each in run(example, fresh(), **given)]
