"""Names from outside choose nothing: what turns a name into code stands in this list, with whose name it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from tests.house.lengths import FILES, ROOT

TURNS: Final = {
    "import_module", "__import__", "import_string", "find_spec", "autodiscover_modules", "resolve_name", "run_path",
    "run_module", "entry_points",
}  # fmt: skip
"""What imports by a name. `test_modules.py` says that nothing evaluates or unpickles."""
OF_THE_CODE: Final = "a name in shardq's own tables"
OF_THE_OPERATOR: Final = "a name that whoever starts the program gives"
ALLOWED: Final = {
    ("shardq/later.py", "import_module"): OF_THE_CODE,
    ("shardq/cli/menu.py", "import_module"): OF_THE_CODE,
    ("shardq/worker/__init__.py", "import_module"): OF_THE_CODE,
    ("shardq/embedded/binary.py", "find_spec"): OF_THE_CODE,
    ("shardq/cli/handlers.py", "import_module"): OF_THE_OPERATOR,
    ("shardq/tasks/tasks.py", "import_module"): "the module of a Tasks, which its own worker gives to a child process",
    ("shardq/django/finding.py", "import_module"): "modules that Django's settings list",
    ("shardq/django/finding.py", "autodiscover_modules"): "apps that Django's settings list",
}


def turning(tree: ast.AST) -> Iterator[str]:
    for each in ast.walk(tree):
        if isinstance(each, ast.Call):
            name = getattr(each.func, "attr", getattr(each.func, "id", ""))
            if name in TURNS:
                yield name


def test_only_names_of_the_program_and_of_its_operator_become_code() -> None:
    found = {
        (file.relative_to(ROOT).as_posix(), name) for file in FILES for name in turning(ast.parse(file.read_text()))
    }
    assert found == ALLOWED.keys()
