// Tenant: why it waits, until when, and what would help.
import { h, b, link, n, pct, rate, span, age, plural, sum, REASONS, MEANS } from "../dom.js";
import { bar, chart } from "../charts.js";
import { byFilter } from "../filter.js";
import { card, facts, figures, head, helpList, here, opens, section, table, told, zero } from "../parts.js";

export const title = (d) => `${d.name} · ${d.queue}`;

export function draw(d, page) {
  const f = d.figures, all = sum(REASONS, (r) => d.reasons[r] ?? 0);
  return [head([link("#/", "Overview"), link(here(d.queue), d.queue), link(here(d.queue, "/tenants"), "tenants"), b(d.name)], d.said),
    tools(d, page),
    figures(["Waiting", n(f.waiting)], ["First for", span(f.oldest)], ["In flight", n(f.flight), f.cap ? `of ${n(f.cap)}` : null], ["Share of last minute", pct(f.share), f.rate === null ? null : rate(f.rate)], ["Picked up in", span(f.p99), f.p99 === null ? null : "p99"], ["Dead", n(f.dead)]),
    h("div", { class: "grid" },
      section("Why it waits", all ? plural(all, "message") : "it does not", "c7", card("why it waits", why(d, all)), d.turns.length ? h("div", { class: "card below", "data-room": "turns" }, facts(d.turns.map(([label, words]) => [label, told(words)]))) : null),
      section("Limits", d.plan ? `plan ${d.plan}` : null, "c5", h("div", { class: "card" }, facts(d.limits.map(([label, words]) => [label, told(words)])))),
      d.past ? section("How long the first in line waits", "of all tenants, by the minute", "c7", h("div", { class: "card" }, chart([{ name: "the one that waits longest", css: "turn", values: d.past.oldest, area: true }], { start: d.past.start, step: d.past.step, marks: d.past.marks, log: true, format: span, label: `How long the first in line of ${d.queue} waits, half an hour` }))) : null,
      section("What would help", "reckoned from the last minutes", "c5", card("helps", helpList(d.helps, d.no_help))),
      section("Its messages", "some of each state", "c7", d.messages.length ? messages(d) : h("p", { class: "soft" }, "The queue has no message of it.")),
      section("Its failures", d.failures.length ? "groups that name it among their last tenants; the numbers are of all" : null, "c7", d.failures.length ? failures(d) : h("p", { class: "soft" }, "No group of failures names it.")),
      section("Neighbours", "share a stream with it", "c5", h("div", { class: "card" }, neighbours(d, page))))];
}

function tools(d, page) {
  const who = { queue: d.queue, ...d.who }, found = [
    d.is_paused ? page.button("resume", who, "End the pause") : page.button("pause", who, "Pause for…"),
    page.button("limit", who, "Limit until…"), page.button("weight", who, "Weight…"), d.can_plan ? page.button("plan", who, "Plan…") : null,
    d.figures.dead ? page.button("redrive", who, `Redrive ${n(d.figures.dead)}…`) : null,
    d.can_purge ? page.button("purge", who, `Purge ${plural(d.can_purge, "message")}…`, { bad: true }) : null].filter(Boolean);
  return found.length ? h("div", { class: "tools acts", "data-room": "tools" }, found, byFilter(page, who)) : null;
}

function why(d, all) {
  if (!all) return h("p", { class: "soft" }, "Nothing of it waits, is delayed or failed.");
  return [bar(d.reasons, all, true), h("ul", { class: "reasons" }, REASONS.filter((r) => d.reasons[r]).map((r) => h("li", { "data-key": r }, h("span", { class: "key " + r }, MEANS[r][0]), h("span", { class: "num" }, n(d.reasons[r])), h("span", { class: "soft" }, d.why[r]?.length ? told(d.why[r]) : MEANS[r][1]))))];
}

const STATES = { in_flight: "worked on", waiting: "waits", held_back: "held back", delayed: "delayed", dead: "dead" };

const messages = (d) => table("Messages of this tenant", [["Message", ""], ["Task", "p2"], ["Is", "nowrap"], ["Tries", "num p2"], ["Last error", "p3"]],
  d.messages.map((m) => { const to = here(d.queue, "/message/" + encodeURIComponent(m.id)); return h("tr", { ...opens(to), "data-key": m.id },
    h("td", null, h("a", { href: to, class: "plain mono", title: m.id }, short(m.id))), h("td", { class: m.task ? "p2 name" : "p2 soft" }, m.task || "–"), h("td", { class: "nowrap" }, STATES[m.state], h("span", { class: "sub" }, m.when)), zero(m.tries, n(m.tries), "num p2"), h("td", { class: "p3 soft" }, m.error || "–")); }));
/** An id may end with a quoted shard key of 3,000 letters. */
export const short = (id) => id.length > 28 ? id.slice(0, 27) + "…" : id;

const failures = (d) => table("Failures of this tenant", [["Task and error", ""], ["In 10 min", "num"], ["Dead", "num"], ["Last", "num p2"]],
  d.failures.map((g) => h("tr", { ...opens(here(d.queue, "/failures")), "data-key": `${g.task} ${g.error}`, "data-tone": g.fails ? "bad" : null },
    h("td", null, h("span", { class: "name" }, g.error), g.task ? [" ", h("span", { class: "soft" }, "in ", g.task)] : null), zero(g.recent), zero(g.dead), h("td", { class: "num p2" }, age(d.now - g.last), " ago"))));

function neighbours(d, page) {
  const says = d.window ? `Streams do not decide who waits here (window ${n(d.window)}): a neighbour delays it by ${plural(d.window, "message")} at most. ` : "";
  if (d.neighbours === null) return h("p", { class: "soft" }, says, h("button", { class: "btn small", type: "button", onclick: () => page.ask({ neighbours: "1" }) }, "Look them up"));
  if (!d.neighbours.length) return h("p", { class: "soft" }, says, "Nobody with a backlog shares a stream with it.");
  return [h("p", { class: "soft" }, says), h("dl", { class: "facts below" }, d.neighbours.map((x) => [h("dt", { "data-key": x.key }, link(here(d.queue, "/tenant/" + encodeURIComponent(x.key)), x.name)), h("dd", null, `${n(x.shared)} of ${plural(x.of, "stream")}, ${n(x.backlog)} waiting`)]))];
}
