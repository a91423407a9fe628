// One queue: who waits and why, does it drain, what helps, whose turn is next.
import { h, b, link, n, pct, rate, span, plural, tone, REASONS, MEANS } from "../dom.js";
import { bar, chart } from "../charts.js";
import { card, figures, head, helpList, here, opens, row, section, slots, table, told, zero } from "../parts.js";
import { byFilter } from "../filter.js";
import { drains } from "./overview.js";

export const title = (d) => d.name;

export function draw(d, page) {
  const f = d.figures, tools = [page.button("pause", { queue: d.name }, "Pause for…"), page.button("resume", { queue: d.name }, "End the pause")].filter(Boolean);
  return [head([link("#/", "Overview"), b(d.name)], d.said),
    tools.length ? h("div", { class: "tools acts" }, d.is_paused ? tools[1] : tools[0], byFilter(page, { queue: d.name })) : null,
    figures(["Waiting", n(f.waiting)], d.is_paused ? ["Paused for", span(d.paused_for)] : ["First for", span(f.oldest), f.oldest_is_sampled ? "or more" : null], ["In flight", n(f.in_flight), f.slots ? `of ${plural(f.slots, "slot")}` : null], ["Written", rate(f.written)], ["Done", rate(f.done)], ["All drain in", drains(d), !d.tag && d.drains.why || null], ["Others wait", span(f.others), f.others === null ? null : "p99"], ["Dead", n(f.dead)]),
    h("div", { class: "grid" },
      section("Who waits, and why", d.who.note, "c7", card("why it waits", why(d)), d.who.tenants.length ? [tenants(d), h("p", { class: "soft below" }, link(here(d.name, "/tenants"), "All tenants"))] : null),
      h("div", { class: "c5 grid" },
        section("What would help", "reckoned from the last minutes", "", card("helps", helpList(d.helps, told(d.no_help)))),
        section("The next turns", "an estimate: least in flight first", "", card("turns", d.turns.length < 2 ? h("p", { class: "soft" }, "No two wait for a turn.") : h("ol", { class: "turns" }, d.turns.map(([name, times, isLarge]) => h("li", { class: isLarge ? "noisy" : null, title: name.length > 24 ? name : null }, name, times > 1 ? ` × ${n(times)}` : null)))))),
      d.past ? section("In and out", "per second", "c6", h("div", { class: "card" }, inAndOut(d))) : null,
      d.past ? section("How long it takes", "until it is delivered, and then to be done", "c6", h("div", { class: "card" }, howLong(d))) : null,
      section("Kinds of task", "last ten minutes", "c6", d.kinds.length ? kinds(d) : h("p", { class: "soft" }, "No worker told of a task in the last ten minutes.")),
      section("Workers", d.crew, "c6", d.workers.length ? workers(d) : h("div", { class: "card" }, h("p", null, told(d.nobody))), d.more_workers ? h("p", { class: "soft below" }, `${n(d.more_workers)} more: `, link("#/workers", "all workers")) : null),
      d.partitions.length ? section("Partitions", "each in a cluster slot of its own", "c6", partitions(d)) : null)];
}

function why(d) {
  const found = d.who.reasons, all = REASONS.reduce((a, r) => a + found[r], 0);
  if (!all) return h("p", { class: "soft" }, "Nothing waits.");
  return [bar(found, all, true), h("ul", { class: "reasons" }, REASONS.filter((r) => found[r]).map((r) => h("li", { "data-key": r }, h("span", { class: "key " + r }, MEANS[r][0]), h("span", { class: "num" }, n(found[r])), h("span", { class: "soft" }, told(d.who.why[r])))))];
}

function tenants(d) {
  const most = Math.max(1, ...d.who.tenants.map((t) => t.waits)), to = (t) => here(d.name, "/tenant/" + encodeURIComponent(t.key));
  return h("div", { class: "below" }, table("Tenants that wait", [["Tenant", ""], ["Why it waits", "p2"], ["Waiting", "num"], ["All served in", "num"], ["Share now", "num p2"]],
    d.who.tenants.map((t) => h("tr", { ...opens(to(t)), "data-key": t.key }, h("td", null, row(to(t), t.name)), h("td", { class: "p2" }, bar(t.reasons, most)), zero(t.waiting), h("td", { class: "num" }, span(t.served_in)), h("td", { class: "num p2" }, pct(t.share))))));
}

const past = (d) => ({ start: d.past.start, step: d.past.step, marks: d.past.marks });
const few = (v) => v >= 10 || v === 0 ? n(v) : v.toFixed(1);
const inAndOut = (d) => chart([{ name: "written", css: "turn", values: d.past.written, area: true }, { name: "done", css: "run", values: d.past.done }, ...(d.past.failed.some(Boolean) ? [{ name: "failed", css: "retry", values: d.past.failed }] : [])], { ...past(d), format: few, label: `Messages written and done per second in ${d.name}, half an hour` });
const howLong = (d) => chart([{ name: "the first in line", css: "turn", values: d.past.oldest, area: true }, { name: "a job, p99", css: "run", values: d.past.took }], { ...past(d), log: true, format: span, label: `How long messages of ${d.name} wait, and jobs take, half an hour` });

const kinds = (d) => table("Kinds of task", [["Task", ""], ["Of all", "num"], ["p50", "num p2"], ["p99", "num"], ["Fails", "num"]],
  d.kinds.map((k) => h("tr", { "data-key": k.task }, h("td", null, h("span", { class: "name" }, k.task)), h("td", { class: "num" }, pct(k.share)), h("td", { class: "num p2" }, span(k.p50)), h("td", { class: "num" }, span(k.p99)), h("td", { class: "num" }, k.fails ? link(here(d.name, "/failures"), tone("bad", n(k.fails))) : h("span", { class: "soft" }, "0")))));

const part = (p) => [p.node || null, p.draining ? tone("warn", "draining") : null, p.silent ? tone("bad", p.gone ? "is gone" : "does not answer") : null].filter(Boolean).flatMap((each, i) => i ? [" · ", each] : [each]);
const partitions = (d) => table("Partitions", [["Partition", ""], ["Waiting", "num"], ["First for", "num p2"], ["In flight", "num"], ["Delivered", "num p2"]],
  d.partitions.map((p) => h("tr", { "data-key": p.number, "data-tone": p.silent ? "bad" : null }, h("td", null, h("span", { class: "name" }, p.number), h("span", { class: "sub" }, part(p))), ...(p.silent ? ["num", "num p2", "num", "num p2"].map((css) => h("td", { class: css }, "–")) : [zero(p.waiting), h("td", { class: "num p2" }, span(p.oldest)), zero(p.in_flight), zero(p.delivered, n(p.delivered), "num p2")]))));

const workers = (d) => table("Workers", [["Worker", ""], ["Slots", ""], ["Longest job", "num p2"], ["Done a minute", "num p2"], ["Fail", "num p3"]],
  d.workers.map((w) => h("tr", { "data-key": w.id, "data-tone": w.tone }, h("td", null, h("span", { class: "name" }, w.host), h("span", { class: "sub" }, `pid ${w.pid}`, w.stuck ? [" · ", tone("warn", w.stuck)] : null)), h("td", null, slots(w.busy, w.slots, w.stuck ? 1 : 0)), h("td", { class: w.longest === null ? "num zero p2" : "num p2" }, span(w.longest)), zero(w.done, n(w.done), "num p2"), h("td", { class: w.failed ? "num p3" : "num zero p3" }, w.fails_much ? tone("bad", pct(w.failed / (w.done + w.failed))) : n(w.failed)))));
