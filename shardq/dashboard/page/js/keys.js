// What keys do. A person who does not want single keys to do anything switches them off in their list.
import { h } from "./dom.js";
import { kept, keep } from "./theme.js";

const NAME = "shardq-keys";
const LIST = [["/", "find a tenant"], ["j  k", "next, previous row"], ["Enter", "open the row"], ["u", "one level up"], ["g o", "overview"], ["g w", "workers"], ["g s", "schedules"], ["1 … 9", "the queue of this place in the list"], ["?", "these keys"]];
const GO = { o: "#/", w: "#/workers", s: "#/schedules" };
const main = document.getElementById("main"), dialog = document.getElementById("keys");

export function showKeys() {
  const box = h("input", { type: "checkbox", onchange: (e) => keep(NAME, e.currentTarget.checked ? null : "off") });
  box.checked = kept(NAME) !== "off";
  dialog.replaceChildren(h("h2", { id: "keys-title" }, "Keys"), h("dl", null, LIST.map(([key, what]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)])),
    h("p", { class: "below" }, h("label", null, box, " Single keys do this")), h("form", { method: "dialog", class: "below" }, h("button", { class: "btn" }, "Close")));
  dialog.showModal();
}

function step(by) {
  const rows = [...main.querySelectorAll("tbody tr[tabindex]")], at = rows.indexOf(document.activeElement?.closest?.("tr"));
  rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))]?.focus();
}

/** place(): {queues: names in the order of the side, find(): opens the search of tenants}. */
export function listen(place) {
  let wasG = false;
  addEventListener("keydown", (e) => {
    if (e.metaKey || e.ctrlKey || e.altKey || document.querySelector("dialog[open]")) return;
    if (e.target.matches("input, select, textarea")) { if (e.key === "Escape") e.target.blur(); return; }
    const row = document.activeElement?.matches?.("tr[tabindex]") ? document.activeElement : null;
    if (e.key === "Enter") { if (row) { e.preventDefault(); row.dataset.open ? location.hash = row.dataset.open : row.click(); } return; }
    if (kept(NAME) === "off") return;
    const afterG = wasG;
    wasG = e.key === "g";
    if (afterG) { if (GO[e.key]) location.hash = GO[e.key]; }
    else if (e.key === "/") { e.preventDefault(); place.find(); }
    else if (e.key === "j") step(1);
    else if (e.key === "k") step(-1);
    else if (e.key === "u") { const up = [...main.querySelectorAll(".crumbs a")].pop(); if (up) location.hash = up.getAttribute("href"); }
    else if (e.key === "?") showKeys();
    else if (/^[1-9]$/.test(e.key)) { const to = place.queue(Number(e.key) - 1); if (to) location.hash = to; }
  });
}
