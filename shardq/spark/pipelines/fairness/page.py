"""The fairness of a queue as one HTML file, which needs no other file, font or script."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from shardq.spark.pipelines.fairness.findings import Findings, shown_text

STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .5rem 0 1.5rem }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap }
th:first-child, td:first-child { text-align: left } th { background: #f4f4f4 }
.wide { overflow-x: auto } img { max-width: 100% } dt { font-weight: 600; float: left; clear: left; width: 12rem }
"""


def page(found: Findings, picture: bytes) -> str:
    """The text of the file. Shard keys are escaped, because tenants choose them."""
    name = escape(found.queue)
    image = base64.b64encode(picture).decode()
    remarks = "".join(f"<li>{escape(each)}</li>" for each in found.remarks())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Fairness of {name}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<style>{STYLE}</style></head><body>
<h1>Fairness of {name}</h1>
<p>{found.begin:{TIME}} to {found.end:{TIME}} UTC, {len(found.windows):,} windows of {found.window:,} s</p>
<ul>{remarks}</ul>
<dl>{_facts(found)}</dl>
<img alt="Service, Jain's index, pick-up delays and isolation" src="data:image/png;base64,{image}">
<h2>Shard keys that were served most</h2>{_table(KEY_COLUMNS, found.top)}
<h2>Noisy shard keys and who shares streams with them</h2>{_noisy(found)}
<h2>Quiet shard keys by streams without a noisy one</h2>{_clean(found)}
<h2>Windows</h2>{_table(WINDOW_COLUMNS, found.windows)}
</body></html>
"""


KEY_COLUMNS: Final = (
    "shard_key", "arrived", "picked", "repeated", "dead", "demand_share", "share", "excess", "owed", "noisy", "p50",
    "p95", "p99",
)  # fmt: skip
WINDOW_COLUMNS: Final = (
    "window", "arrived", "picked", "waiting", "keys", "level", "jain", "noisy", "p50", "p95", "p99",
)  # fmt: skip
TIME: Final = "%Y-%m-%d %H:%M:%S"
FORMATS: Final = {"demand_share": ".2%", "share": ".2%", "jain": ".3f", "window": TIME}


def _facts(found: Findings) -> str:
    totals = found.totals
    delays = ", ".join(f"{name} {_cell('', totals[name])}" for name in ("p50", "p95", "p99"))
    pairs = {
        "shard keys": _cell("", totals["keys"]),
        "arrived": _cell("", totals["arrived"]),
        "served": f"{_cell('', totals['picked'])}, and {_cell('', totals['repeated'])} deliveries again",
        "dead": _cell("", totals["dead"]),
        "Jain's index": "-" if found.jain is None else f"{found.jain:.3f}",
        "pick-up delay": f"{delays} ms",
    }
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs.items())


def _noisy(found: Findings) -> str:
    rows = [
        (
            shown_text(each.shard_key),
            " ".join(map(str, each.streams[:16])),
            *(f"{count:,}" for count in _padded(each.sharing)),
            "; ".join(f"{shown_text(one.shard_key)} ({one.shared}, {_cell('', one.p95)} ms)" for one in each.worst),
        )
        for each in found.around.noisy
    ]
    return _rows(("shard key", "streams", "share 1", "2", "3", "4 or more", "worst off (shared, p95)"), rows)


def _padded(sharing: Sequence[int]) -> tuple[int, int, int, int]:
    one, two, three, *more = (*sharing, 0, 0, 0)
    return one, two, three, sum(more)


def _clean(found: Findings) -> str:
    columns = ("clean", "keys", "picked", "p50", "p95", "p99")
    return _rows(columns, [[_cell("", getattr(each, name)) for name in columns] for each in found.around.clean])


def _table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    return _rows(
        [each.replace("_", " ") for each in columns], [[_cell(each, row[each]) for each in columns] for row in rows]
    )


def _rows(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "<p>none</p>"
    head = "".join(f"<th>{escape(each)}</th>" for each in headers)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "shard_key":
        return shown_text(value)
    return format(value, FORMATS.get(name, ",.0f" if isinstance(value, float) else ","))
