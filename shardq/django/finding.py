"""From a path to Django's task, or to the class of an error. Paths come from Redis: they find what is there already.

The project decides which ones are there: the modules named `tasks` of its apps, those that OPTIONS["tasks"] lists, and
any that its own code has imported. No path imports anything, and none calls code of a module, such as its
`__getattr__`.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from django.tasks import Task
from django.utils.module_loading import autodiscover_modules

from shardq.errors import ConfigError
from shardq.model.failed import MAX_TEXT


@cache
def load_tasks(modules: tuple[str, ...]) -> None:
    """Import the modules of tasks, once: those of the apps, and *modules*. ConfigError for one that is not there."""
    autodiscover_modules("tasks")
    for each in modules:
        try:
            import_module(each)
        except ModuleNotFoundError as error:
            raise ConfigError(f"OPTIONS['tasks'] names {each!r}, which cannot be imported: {error}") from error


def find_task(path: str) -> Task | None:
    """Return the task at `module.function`, if it was imported already."""
    module, _, name = path.rpartition(".")
    found = _attributes(module).get(name)
    return found if isinstance(found, Task) and found.module_path == path else None


def known_task(path: str, modules: tuple[str, ...]) -> Task | None:
    """Return the task at `module.function`, if it is in what a worker imports: a web process may have imported less."""
    found = find_task(path)
    if found is None:
        load_tasks(modules)
        found = find_task(path)
    return found


def loaded_tasks(modules: tuple[str, ...]) -> list[Task]:
    """Return the tasks of modules that were imported so far and are named `tasks`, as Django wants it, or *modules*."""
    names = [name for name in [*sys.modules] if name.rpartition(".")[2] == "tasks" or name in modules]
    return [each for name in names for each in [*_attributes(name).values()] if isinstance(each, Task)]


def find_error(path: str) -> type[BaseException] | None:
    """Return the class of errors at `module.Class`, or `module.Class.Inner`, if its module was imported already."""
    if len(path) > MAX_TEXT:  # no worker has noted that
        return None
    module, _, name = path.rpartition(".")
    names = [name]
    while module and module not in sys.modules:
        module, _, name = module.rpartition(".")
        names.insert(0, name)
    found: Any = _attributes(module).get(names[0])
    for each in names[1:]:
        found = vars(found).get(each) if isinstance(found, type) else None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _attributes(module: str) -> dict[str, Any]:
    found = sys.modules.get(module)
    return vars(found) if isinstance(found, ModuleType) else {}
