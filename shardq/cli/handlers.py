"""Import the handler that a command line names as `module:function`: a function, or a Tasks."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from traceback import extract_tb
from typing import Any

from shardq.cli.exits import UsageError
from shardq.errors import ShardqError
from shardq.model.failed import name_of, text_of
from shardq.tasks import Tasks
from shardq.worker.guard import traceback_of


def imported(name: str) -> Callable[[Any], Any]:
    """Return what *name* stands for. UsageError says in one line why there is none, or why its module fails."""
    module, _, path = name.partition(":")
    if not module or name.endswith(":"):
        raise UsageError(f"the handler must be named as module:function, not {name!r}")
    _check_no_file(module, path)
    if "" not in sys.path and os.getcwd() not in sys.path:  # noqa: PTH109 (sys.path holds strings)
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        found: Any = importlib.import_module(module)
        if path:
            return _found(found, module, path)
    except (UsageError, ShardqError, KeyboardInterrupt):
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise UsageError(f"there is no module {module!r} here") from None
        raise _failed(module, error) from None
    except BaseException as error:  # noqa: BLE001 (a module does what it likes)
        raise _failed(module, error) from None
    there = [f"{name}:{each}" for each, it in vars(found).items() if isinstance(it, Tasks)]
    hint = f"which has {', '.join(there)}" if there else f"as in {name}:handle"
    raise UsageError(f"the handler must be named as module:function, not {name!r}, {hint}")


def _check_no_file(module: str, path: str) -> None:
    """Raise UsageError if *module* is the path of a file."""
    if not (os.sep in module or module.endswith(".py") or module.startswith(".")):
        return
    file = Path(module)
    parts = file.with_suffix("").parts if file.suffix == ".py" else file.parts
    named = f"{'.'.join(parts)}:{path or 'handle'}"
    inside = not file.is_absolute() and ".." not in parts and all(map(str.isidentifier, parts))
    raise UsageError(
        f"a module is named, not a file: {named}"
        if inside
        else f"a module is named, not a file: go to its folder, and write {file.stem}:{path or 'handle'}"
    )


def _found(module: Any, name: str, path: str) -> Callable[[Any], Any]:
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found) and not isinstance(found, Tasks):
        raise UsageError(f"module {name!r} has no function and no tasks {path!r}{_hidden(name, module)}")
    return found  # type: ignore[no-any-return]


def _failed(module: str, error: BaseException) -> UsageError:
    """Say what *module* raised, and where."""
    said = ": ".join(filter(None, (name_of(error), text_of(error))))
    return UsageError(f"module {module!r} cannot be imported: {said}{_place(error)}{_hiding()}")


def _place(error: BaseException) -> str:
    """Return the line that raised *error*, in this folder's files if one of them is among those; '' if it says so."""
    frames = extract_tb(traceback_of(error))
    if isinstance(error, SyntaxError) or not frames:
        return ""
    last = ([each for each in frames if _is_here(each.filename)] or frames)[-1]
    return f" ({Path(last.filename).name}, line {last.lineno})"


def _hiding() -> str:
    """Say which module of this folder was imported in the place of one of Python's own."""
    for name in sorted(sys.stdlib_module_names & sys.modules.keys()):
        if _is_here(getattr(sys.modules[name], "__file__", None)):
            return f"; {name}.py of this folder hides Python's own module {name!r}: rename it"
    return ""


def _hidden(name: str, module: Any) -> str:
    """Say that *module* is Python's own, and hides a file of this folder."""
    if name not in sys.stdlib_module_names or _is_here(getattr(module, "__file__", None)):
        return ""
    return (
        f": it is Python's own module, and hides {name}.py of this folder: rename that"
        if Path(f"{name}.py").exists()
        else ""
    )


def _is_here(file: str | None) -> bool:
    """Whether *file* lies in this folder, and was not installed there."""
    path = Path(file or os.devnull)
    return path.is_relative_to(Path.cwd()) and "site-packages" not in path.parts
