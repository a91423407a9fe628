"""The pages of the API: each public name with its signature and its docstring."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import griffe

from tests.house import api
from tests.house.api import Member, Public
from tests.house.site.staging import CODE

WIDTH: Final = 100
"""Letters of a line; a longer signature has a line for each argument."""
BLOCK: Final = re.compile(r"^(.*?)::\n\n((?:(?:    .*)?\n)+)", re.MULTILINE)
EXAMPLE: Final = re.compile(r"^>>> .*\n(?:.+\n)*", re.MULTILINE)
"""An example of a docstring, up to the next empty line."""
TITLES: Final = {
    "client": "Client and worker", "asyncio": "The same with asyncio", "values": "What calls take and return",
}  # fmt: skip
"""The pages of the package itself, which has more names than a page holds."""


def page_of(each: Public) -> str:
    """Return on which page of the package itself a name is."""
    if each.name.startswith("Async"):
        return "asyncio"
    return "values" if each.path.startswith("shardq.model.") else "client"


def pages() -> Mapping[str, str]:
    """Return the pages by their names below reference/api."""
    texts = {f"{name}.md": [f"# {title}\n\nNames of `shardq`.\n"] for name, title in TITLES.items()}
    for module in api.MODULES:
        if module != "shardq":
            texts[f"{module.partition('.')[2]}.md"] = [f"# {module}\n"]
        for each in api.names(module):
            if module == "shardq" and api.is_error(each):
                continue  # they have a page of their own
            name = page_of(each) if module == "shardq" else module.partition(".")[2]
            texts[f"{name}.md"] += entry(each)
    return {name: "\n".join(parts) for name, parts in texts.items()}


def entry(each: Public) -> Iterator[str]:
    """What a page says of a name: its signature, docstring, fields and methods."""
    yield f"## {each.name}\n"
    yield from described(each)
    if isinstance(each, griffe.Function):
        return
    fields = [member for member in api.members(each) if isinstance(member, griffe.Attribute)]
    if fields:
        yield "| field | type | what |\n|---|---|---|"
        yield "".join(f"| `{one.name}` | {type_of(one, each)} | {line(api.text(one))} |\n" for one in fields)
    for member in api.members(each):
        if isinstance(member, griffe.Function):
            yield f"### {each.name}.{member.name}\n"
            yield from described(member)


def described(each: Public | Member) -> Iterator[str]:
    """The signature, if it can be called, and the docstring."""
    if isinstance(each, griffe.Function):
        yield f"```python\n{signature(each)}\n```\n"
    elif isinstance(each, griffe.Class) and (init := api.init_of(each)):
        yield f"```python\n{signature(init).replace('__init__', each.name, 1).removesuffix(' -> None')}\n```\n"
    yield f"{markdown(api.text(each))}\n"


def signature(each: griffe.Function) -> str:
    """Return how it is called, with types: as one line, or with a line for each argument."""
    text = str(each.signature())
    word = "async def " if "async" in each.labels else "def "
    if len(text) <= WIDTH:
        return word + text
    arguments = split(text[text.index("(") + 1 : text.rindex(")")])
    return "\n".join([f"{word}{each.name}(", *(f"    {one}," for one in arguments), text[text.rindex(")") :]])


def split(arguments: str) -> Iterator[str]:
    """The arguments of a signature: what stands between commas outside of brackets and quotes."""
    depth, begun, quoted = 0, 0, ""
    for place, letter in enumerate(arguments):
        if letter in "'\"":
            quoted = "" if quoted == letter else quoted or letter
        elif quoted:
            continue
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            yield arguments[begun:place].strip()
            begun = place + 1
    yield arguments[begun:].strip()


def type_of(each: griffe.Attribute, kind: griffe.Class) -> str:
    """Return the type of a field of a class as a table has it."""
    text = api.type_of(each, kind).removeprefix("Annotated[")
    return f"`{next(split(text))}`".replace("|", "or") if text else ""


def line(text: str) -> str:
    """Return a docstring as one line of a table."""
    return " ".join(markdown(text).split()).replace("|", "\\|")


def markdown(text: str) -> str:
    """Return a docstring as Markdown: its blocks of code get fences."""
    fenced = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}```\n", BLOCK.sub(in_fences, f"{text}\n"))
    parts = CODE.split(fenced)
    parts[::2] = [part.replace("<", "&lt;").replace(">", "&gt;") for part in parts[::2]]
    return "".join(parts).strip()


def in_fences(found: re.Match[str]) -> str:
    """Return a block of a docstring between fences, below the line before it with one colon."""
    before = f"{found[1]}:\n\n" if found[1] else ""
    code = re.sub(r"^    ", "", found[2].strip("\n"), flags=re.MULTILINE)
    return f"{before}```python\n{code}\n```\n\n"


def write(folder: Path) -> None:
    """Write all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(f"{text.rstrip()}\n", encoding="utf-8")
