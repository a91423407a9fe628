"""A report as one file of HTML, which asks for no other: light and dark, on a screen or a phone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Final

from shardq.reports.told import Table, Told

STYLE: Final = """
:root { color-scheme: light dark; --ground: #fff; --text: #1c2024; --soft: #60646c; --line: #d9d9e0; --bar: #eeeef2;
  --part0: #2f6feb; --part1: #b9bbc6; --bad: #c62a2f }
@media (prefers-color-scheme: dark) { :root { --ground: #111113; --text: #edeef0; --soft: #b0b4ba; --line: #363a3f;
  --bar: #212225; --part0: #6ea8fe; --part1: #696e77; --bad: #ff7b80 } }
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; color: var(--text);
  background: var(--ground); overflow-wrap: anywhere }
h1 { font-size: 1.3rem; margin: 0 } h2 { font-size: 1.05rem; margin: 1.5rem 0 .3rem }
p { margin: .4rem 0 } .verdict { font-size: 1.1rem; font-weight: 600 } .verdict.bad { color: var(--bad) }
.soft, footer { color: var(--soft); font-size: .9rem }
.wide { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100% }
th, td { padding: .25rem .5rem .25rem 0; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap }
th { color: var(--soft); font-weight: 500; font-size: .9em; overflow-wrap: normal }
th.name, td.name { text-align: left; white-space: normal; min-width: 7rem }
svg { display: block; width: 100%; max-width: 32rem; margin: 1rem 0 }
svg text { font: 12px system-ui, sans-serif; fill: var(--text) } svg .value { text-anchor: end; fill: var(--soft) }
svg .ground { fill: var(--bar) } svg .part0 { fill: var(--part0) } svg .part1 { fill: var(--part1) }
@media (max-width: 32rem) { table { font-size: .85rem } th, td { padding-right: .3rem } th { white-space: normal }
  th.name, td.name { min-width: 5.5rem } }
svg .bad { fill: var(--bad) } svg .mark { fill: var(--text) }
"""
INVISIBLE_LETTERS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
"""Letters that turn the text around them, or that nobody sees."""


def page(told: Told, span: str) -> str:
    """The text of the file."""
    remarks = "".join(f'<p class="soft">{_text(each)}</p>' for each in told.remarks)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{_text(told.title)}</title><style>{STYLE}</style></head><body>
<h1>{_text(told.title)}</h1><p class="soft">{_text(span)}</p>
<p class="verdict{" bad" if told.is_bad else ""}">{_text(told.verdict)}</p>{remarks}
{INVISIBLE_LETTERS.sub(_code, told.picture)}
{"".join(map(_table, told.tables))}
</body></html>
"""


def _table(table: Table) -> str:
    head = "".join(f"<th{_style(at, table)}>{_text(name)}</th>" for at, name in enumerate(table.columns))
    body = "".join(f"<tr>{_cells(row, table)}</tr>" for row in table.rows)
    shown = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    return f"<h2>{_text(table.title)}</h2>{shown if table.rows else '<p>none</p>'}"


def _cells(row: Sequence[str], table: Table) -> str:
    return "".join(f"<td{_style(at, table)}>{_text(cell)}</td>" for at, cell in enumerate(row))


def _style(at: int, table: Table) -> str:
    return ' class="name"' if at < table.names else ""


def _text(text: str) -> str:
    return escape(INVISIBLE_LETTERS.sub(_code, text))


def _code(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
