"""Whether a screen holds together: no text leaves the box it stands in, and no table needs to be pushed sideways."""

from __future__ import annotations

from typing import Final

from tests.dashboard.browser import SIZES, THEMES, Look

_TORN: Final = """
() => {
  const torn = [], cuts = (box) => getComputedStyle(box).overflowX !== "visible";
  const isInline = (box) => /^inline($|-flex|-grid)/.test(getComputedStyle(box).display);
  const nameOf = (box) => `${box.tagName.toLowerCase()}.${box.getAttribute("class") ?? ""}`;
  const told = (text, box) => torn.push(`"${text.slice(0, 60)}" leaves ${nameOf(box)}`);
  for (const box of document.querySelectorAll("main .wide")) {
    const more = box.scrollWidth - box.clientWidth;
    if (more > 1) told(`${box.querySelector("table").getAttribute("aria-label")}, by ${more} px`, box);
  }
  for (const box of document.querySelectorAll("dialog[open]")) {
    if (box.scrollWidth > box.clientWidth) told(box.textContent, box);
  }
  const isOut = (box) => box.getBoundingClientRect().right > innerWidth + 1;
  if (document.documentElement.scrollWidth > innerWidth) {
    for (const box of document.querySelectorAll("body *")) {
      if (isOut(box) && ![...box.children].some(isOut)) told(box.textContent, box);
    }
  }
  const all = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (all.nextNode()) {
    const text = all.currentNode, holder = text.parentElement;
    if (!text.data.trim() || !holder.checkVisibility() || holder.closest("pre, .unseen, .skip, #nav, select")) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    const { left, right, width } = range.getBoundingClientRect();
    if (!width) continue;
    const svg = holder.closest("svg");
    for (let box = svg ? svg.closest(".card, td") : holder; box && box !== document.body; box = box.parentElement) {
      if (isInline(box)) continue;
      if (cuts(box)) break;
      const edge = box.getBoundingClientRect();
      if (right > edge.right + 1 || left < edge.left - 1) { told(text.data, box); break; }
    }
  }
  return torn.slice(0, 10);
}
"""


def check_layout(look: Look) -> None:
    """Assert that the page is no wider than its window, and each text within its box."""
    torn: list[str] = look.page.evaluate(_TORN)
    assert not torn, "\n".join([look.page.url, *torn])
    look.check_width()


def check_all_sizes(look: Look) -> None:
    """Assert that what is shown holds together and can be used by all, in each width and both colours."""
    for width in SIZES:
        for theme in THEMES:
            look.wear(width, theme)
            check_layout(look)
            look.check_axe()
