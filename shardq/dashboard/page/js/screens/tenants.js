// Tenants: who is noisy, whether anybody suffers, and who has what. Order and search are of the server: it knows all.
import { h, b, age, link, n, pct, span } from "../dom.js";
import { bar, chart } from "../charts.js";
import { byFilter } from "../filter.js";
import { head, here, legend, opens, row, section, table, told, zero } from "../parts.js";

export const title = (d) => `Tenants · ${d.queue}`;

export function draw(d, page) {
  return [head([link("#/", "Overview"), link(here(d.queue), d.queue), b("tenants")], d.said),
    byFilter(page, { queue: d.queue }),
    h("div", { class: "grid" },
      d.past ? section("How long the first in line waits", "half an hour, by the minute", "", h("div", { class: "card" }, chart([{ name: "the one that waits longest", css: "turn", values: d.past.oldest, area: true }], { start: d.past.start, step: d.past.step, marks: d.past.marks, log: true, width: 1240, height: 170, format: span, label: `How long the first in line of ${d.queue} waits, half an hour` }))) : null,
      h("section", { "data-key": "tenants" }, h("h2", null, "Tenants", h("span", { class: "soft" }, note(d))),
        h("div", { class: "tools" }, search(d, page), h("kbd", null, "/"), legend("worker", "turn", "limit", "pause", "delay", "retry")),
        d.rows.length ? rows(d, page) : h("p", { class: "soft" }, d.search ? "No tenant has this in its name." : "Nobody has anything in this queue.")))];
}

function note(d) {
  const found = d.search ? `${n(d.matching)} of ${n(d.total)}` : `of ${n(d.total)}`, shown = d.more > 0 ? `, ${n(d.rows.length)} shown` : "";
  return `${found}${shown}; surveyed ${age(d.age)} ago`;
}

const search = (d, page) => h("input", { type: "search", id: "search", placeholder: "Find a tenant", "aria-label": "Find a tenant", value: d.search, autocomplete: "off", spellcheck: "false", maxlength: 200, oninput: (e) => page.ask({ search: e.target.value }, true) });

const column = (d, page, key, text, css) => [h("button", { type: "button", onclick: () => page.ask({ order: key === "waiting" ? "" : key }) }, text), css, d.order === key ? { "aria-sort": "descending" } : {}];

function rows(d, page) {
  const most = Math.max(d.most, 1), to = (t) => here(d.queue, "/tenant/" + encodeURIComponent(t.key)), by = (...which) => column(d, page, ...which);
  return table("Tenants", [["Tenant", ""], ["Why it waits", "p2"], by("waiting", "Waiting", "num"), by("oldest", "First for", "num p3"), ["All served in", "num"], by("flight", "In flight", "num p2"), by("share", "Share of last minute", "num p3"), by("p99", "Picked up in, p99", "num p2"), ["Plan and limits", "p3"], by("dead", "Dead", "num p3")],
    d.rows.map((t) => h("tr", { ...opens(to(t)), "data-key": t.key, "data-tone": t.tone || null },
      h("td", null, row(to(t), t.name)),
      h("td", { class: "p2" }, bar(t.reasons, most)),
      zero(t.waits),
      h("td", { class: t.oldest === null ? "num zero p3" : "num p3" }, span(t.oldest)),
      h("td", { class: "num" }, t.waits ? span(t.served_in) : h("span", { class: "soft" }, "–")),
      h("td", { class: t.flight ? "num p2" : "num zero p2" }, n(t.flight), t.cap ? ` / ${n(t.cap)}` : ""),
      h("td", { class: t.share === null ? "num zero p3" : "num p3" }, pct(t.share)),
      h("td", { class: t.p99 === null ? "num zero p2" : "num p2" }, span(t.p99)),
      h("td", { class: "p3" }, t.plan ? [h("span", { class: "soft" }, t.plan), " "] : null, t.tags.map(([css, words]) => [h("span", { class: css ? `tag ${css}` : "tag" }, told(words)), " "])),
      zero(t.dead, n(t.dead), "num p3"))));
}
