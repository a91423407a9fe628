"""Adds to formats.json a sample of each format whose version has none. Those that are there stay as they are.

Run it after a format got another number, or after an addition was counted in tests/upgrade/formats.py:
``python -m tests.golden.make_formats``
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.upgrade.formats import FORMATS, GOLDEN, golden


def main() -> None:
    """Write them."""
    found = golden()
    for each in FORMATS:
        versions = found.setdefault(each.name, {})
        if each.version not in versions:
            versions[each.version] = each.sample()
            print(f"{each.name}: version {each.version} is new")
    GOLDEN.write_text(spelled(found))


def spelled(found: Mapping[str, Mapping[str, Mapping[str, object]]]) -> str:
    """The samples as JSON, with a line for each noun."""
    formats = []
    for name, versions in found.items():
        for version, sample in versions.items():
            nouns = ",\n".join(f"  {json.dumps(noun)}: {json.dumps(each)}" for noun, each in sample.items())
            formats.append(f"[{json.dumps(name)}, {json.dumps(version)}, {{\n{nouns}\n}}]")
    return "[\n" + ",\n".join(formats) + "\n]\n"


if __name__ == "__main__":
    main()
