// All queues: does work flow, and which queue needs me?
import { h, n, pct, rate, size, span } from "../dom.js";
import { bar, spark } from "../charts.js";
import { facts, figures, head, here, moment, opens, row, section, table, told, zero } from "../parts.js";

export const title = () => "Overview";

export function draw(d, page) {
  const f = d.figures;
  return [head(["Overview"], d.said),
    figures(["Written", rate(f.written)], ["Done", rate(f.done)], ["Waiting", n(f.waiting)], ["In flight", n(f.in_flight)], ["Slots busy", n(f.busy), `of ${n(f.slots)}`], ["Dead", n(f.dead)], f.memory && ["Redis's memory", f.memory.limit ? pct(f.memory.share) : size(f.memory.used), f.memory.limit ? `of ${size(f.memory.limit)}` : "without a limit"]),
    h("div", { class: "grid" },
      d.all ? section("Queues", "those that need you first", "", search(d, page), d.queues.length ? queues(d) : h("p", { class: "soft" }, "No queue has that in its name."), d.more ? h("p", { class: "soft below" }, `${n(d.more)} more are not shown.`) : null) : null,
      section("What people did", d.did.length ? "and what still holds" : null, "c6", h("div", { class: "card" }, d.did.length ? h("dl", { class: "facts" }, d.did.map((x) => [h("dt", null, moment(x.at, d.now)), h("dd", null, told(x.text))])) : h("p", { class: "soft" }, "Nobody paused, limited or moved anything lately."))),
      d.server.length ? section("The server", null, "c6", h("div", { class: "card" }, facts(d.server.map(([name, text]) => [name, told(text)])))) : null)];
}

/** Where not all queues are shown, one finds the others by their names. */
const search = (d, page) => d.more || d.search ? h("div", { class: "tools" }, h("input", { type: "search", id: "find-queue", placeholder: "Find a queue", "aria-label": "Find a queue", value: d.search, oninput: (e) => page.ask({ search: e.currentTarget.value }, true) })) : null;

const queues = (d) => table("Queues", [["Queue", ""], ["Last half hour", "p2"], ["Written", "num p3"], ["Done", "num p3"], ["Waiting", "num"], ["for what", "p3"], ["First for", "num p2"], ["All drain in", "num"], ["Slots", "num p3"], ["Dead", "num p2"]],
  d.queues.map((q) => q.unknown ? unknown(q) : h("tr", { ...opens(here(q.name)), "data-key": q.name, "data-tone": q.tone },
    h("td", null, row(here(q.name), q.name), h("span", { class: "sub" }, told(q.line))),
    h("td", { class: "p2" }, lately(q)),
    h("td", { class: "num p3" }, rate(q.written)), h("td", { class: "num p3" }, rate(q.done)), zero(q.waiting),
    h("td", { class: "p3 why" }, bar(q.reasons, Object.values(q.reasons).reduce((a, x) => a + x, 0))),
    h("td", { class: "num p2" }, q.paused_for === null ? span(q.oldest) : [span(q.paused_for), h("span", { class: "sub" }, "paused")]), h("td", { class: "num" }, drains(q)),
    h("td", { class: "num p3" }, q.slots ? `${n(q.busy)} / ${n(q.slots)}` : "–"), zero(q.dead, n(q.dead), "num p2"))));

/** A queue of which nothing is known but its name: it is gone, or one may not look at it. */
const unknown = (q) => h("tr", { "data-key": q.name, "data-tone": q.tone }, h("td", null, h("span", { class: "name" }, q.name), h("span", { class: "sub" }, told(q.line))), [["p2"], ["num p3"], ["num p3"], ["num"], ["p3"], ["num p2"], ["num"], ["num p3"], ["num p2"]].map(([css]) => h("td", { class: css }, css === "p2" || css === "p3" ? null : "–")));

const isKnown = (v) => v !== null, lately = (q) => q.lately && q.lately.done.filter(isKnown).length > 1 ? spark([{ css: "turn", values: q.lately.written }, { css: "run", values: q.lately.done }, ...(q.lately.failed.some(Boolean) ? [{ css: "retry", values: q.lately.failed }] : [])], `${q.name}: written and done a minute, half an hour`) : null;

/** When what waits is served; a word where there is no time to say. */
export const drains = (q) => q.tag ? h("span", { class: "tag " + q.tag.css }, q.tag.text) : q.drains.seconds === null ? h("span", { class: "soft" }, q.drains.text === "-" ? "–" : q.drains.text) : span(q.drains.seconds);
