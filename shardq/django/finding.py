"""From the path of a task to Django's task. Paths come from Redis, so they import nothing but the project's code."""

from __future__ import annotations

import sys
from importlib import import_module

from django.apps import apps
from django.conf import settings
from django.tasks import Task


def find_task(path: str) -> Task | None:
    """Return the task at `module.function`, if it is one of this project's or of an installed app's."""
    module_name, _, name = path.rpartition(".")
    module = sys.modules.get(module_name)
    if module is None and module_name.partition(".")[0] in _packages():
        try:
            module = import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise
    found = getattr(module, name, None)
    return found if isinstance(found, Task) and found.module_path == path else None


def loaded_tasks() -> list[Task]:
    """Return the tasks of modules of the project that were imported so far, named `tasks` as Django wants it."""
    modules = [module for name, module in [*sys.modules.items()] if name.rpartition(".")[2] == "tasks"]
    return [each for module in modules for each in [*vars(module).values()] if isinstance(each, Task)]


def _packages() -> set[str]:
    """The top packages of the project and of its apps."""
    named = [getattr(settings, "ROOT_URLCONF", None), getattr(settings, "SETTINGS_MODULE", None)]
    names = [config.name for config in apps.get_app_configs()] + [name for name in named if isinstance(name, str)]
    return {name.partition(".")[0] for name in names}
