// What the theme leaves unnamed for those who use no eyes or no mouse.
addEventListener("DOMContentLoaded", () => {
  document.querySelector(".md-search").setAttribute("aria-label", "Search");
  for (const cell of document.querySelectorAll("th:empty")) cell.replaceWith(document.createElement("td"));
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, pre")) box.tabIndex = 0;
});
