"""Build the wheel, and look at what a user of it meets: `python -m tests.house.wheel [--without-spark]`."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tests.house.wheel import archives
from tests.house.wheel.archives import Failed
from tests.house.wheel.environments import Environment, environments
from tests.house.wheel.pages import pages
from tests.house.wheel.probe import Found, listed
from tests.parts import ALL_NEEDED, APPS, APPS_BIN

AT_ONCE = 2
"""Environments that are made side by side."""

SLOW = {"spark": 3, "gateway": 2, "plot": 1}
"""They begin first, behind the core."""


def python_for(environment: Environment) -> str | None:
    """The Python to make an environment with; None if there is none that can."""
    if "django" not in environment.install.extras or sys.version_info >= (3, 12):
        return sys.executable
    return str(APPS_BIN / "python") if APPS.is_there() else None


def main() -> None:
    """Build, look, install, look."""
    begun = time.monotonic()
    wanted = chosen(without_spark="--without-spark" in sys.argv)
    with tempfile.TemporaryDirectory() as name:
        try:
            wheel = archives.built(Path(name))
            if problems := archives.problems(wheel):
                sys.exit("\n".join(f"wheel: {each}" for each in problems))
            results = looked(wheel, Path(name), wanted)
        except Failed as error:
            sys.exit(f"wheel: {error}")
    if problems := told(results):
        sys.exit("\n".join(f"wheel: {each}" for each in problems))
    core = results[wanted[0]]
    print(f"wheel: {wheel.name} is whole, and pip builds the same from the sdist and from the checkout")
    print(
        f"wheel: {core.modules} modules, {core.commands} commands and {core.scripts} scripts are well in "
        f"{len(results)} environments: {'; '.join(map(str, results))}"
    )
    print(f"wheel: it took {time.monotonic() - begun:.0f} s")


def chosen(*, without_spark: bool) -> list[Environment]:
    """The environments to look at; a line is printed for each that is not."""
    found, missing = [], []
    for each in environments(pages()):
        if without_spark and "spark" in each.install.extras:
            print(f"wheel: {each} is left out, since SPARK=no")
        elif python_for(each) is None:
            missing.append(f"wheel: {each} is left out: {APPS.name} is missing ({APPS.remedy})")
        else:
            found.append(each)
    if missing and ALL_NEEDED:
        sys.exit("\n".join(missing))
    for line in missing:
        print(line)
    core, *others = found
    return [core, *sorted(others, key=lambda each: -sum(SLOW.get(name, 0) for name in each.install.extras))]


def looked(wheel: Path, folder: Path, wanted: Sequence[Environment]) -> dict[Environment, Found]:
    """What was found in each environment, of which the core is the first. Failed if one cannot be made."""

    def look(each: Environment, core: Future[Found] | None = None) -> Found:
        python = each.make(wheel, python_for(each) or "", folder / f"environment {wanted.index(each)}")
        found = each.look(python, core.result().lacks if core else None)
        found.problems += each.follow(python)
        return found

    with ThreadPoolExecutor(AT_ONCE) as pool:
        core = pool.submit(look, wanted[0])
        looks = [core, *(pool.submit(look, each, core) for each in wanted[1:])]
    return {each: look.result() for each, look in zip(wanted, looks, strict=True)}


def told(results: dict[Environment, Found]) -> list[str]:
    """Each problem once, with the environments that have it: first those of commands."""
    places: dict[str, list[str]] = {}
    for each, found in results.items():
        for problem in found.problems:
            places.setdefault(problem, []).append(str(each))
    ordered = sorted(places, key=lambda problem: not problem.startswith("`"))
    return [f"{problem} (in {listed(places[problem])})" for problem in ordered]


if __name__ == "__main__":
    main()
