// Failures of a queue: groups, the chosen one in full, whose it is, and what is under way against it.
import { h, b, link, n, age, plural, tone } from "../dom.js";
import { columns } from "../charts.js";
import { facts, head, here, moment, opens, section, table, zero } from "../parts.js";
import { short } from "./tenant.js";

export const title = (d) => `Failures · ${d.queue}`;

export function draw(d, page) {
  const crumbs = [link("#/", "Overview"), link(here(d.queue), d.queue), b("failures")];
  if (!d.groups.length) return [head(crumbs, d.said), d.actions.length ? underWay(d, page) : null];
  return [head(crumbs, d.said),
    h("div", { class: "grid" },
      section("Groups", "by task, class of error and reason; counted where they happen, not sampled", "", groups(d, page), d.more ? h("p", { class: "soft below" }, `${plural(d.more, "group")} more, of which fewer failed lately.`) : null),
      chosen(d, page),
      h("div", { class: "c5 grid" }, whose(d), d.actions.length ? underWay(d, page) : null))];
}

const groups = (d, page) => table("Failures in groups", [["Task and error", ""], ["Last hour", "p2"], ["In 10 min", "num"], ["Retried", "num p2"], ["Dead", "num"], ["Tenants", "num p3"], ["Since", "num p3"], ["Last", "num p2"]],
  d.groups.map((g) => h("tr", { tabindex: 0, "data-key": g.key, "data-tone": g.fails ? "bad" : null, "aria-selected": String(g.key === d.chosen.key), onclick: () => page.ask({ group: g.key }) },
    h("td", null, h("span", { class: "name" }, g.error), h("span", { class: "sub" }, g.task ? `in ${g.task}` : "of messages that call no task")),
    h("td", { class: "p2" }, columns(g.minutes, `${g.error}: tries that failed, each five minutes of the last hour: ${g.minutes.join(", ")}`)),
    h("td", { class: g.recent ? "num" : "num zero" }, g.fails ? tone("bad", b(n(g.recent))) : n(g.recent)),
    zero(g.retried, n(g.retried), "num p2"), zero(g.dead), zero(g.tenants, n(g.tenants), "num p3"),
    h("td", { class: "num p3" }, moment(g.first, d.now)), h("td", { class: "num p2" }, age(d.now - g.last), " ago"))));

function chosen(d, page) {
  const g = d.chosen, about = { queue: d.queue, ...g.where };
  const tools = [
    g.dead ? page.button("redrive", about, `Redrive ${n(g.dead)}…`, { first: !g.fails }) : null,
    g.waiting === 0 ? null : page.button("retry_now", about, g.waiting === null ? "Try now…" : `Try ${n(g.waiting)} now…`),
    g.waiting === 0 ? null : page.button("cancel", { ...about, state: "retrying" }, g.waiting === null ? "Cancel…" : `Cancel ${n(g.waiting)}…`, { bad: true }),
    g.dead ? page.button("delete", about, `Delete ${n(g.dead)}…`, { bad: true }) : null,
  ].filter(Boolean);
  return section([g.error, "chosen"], g.task ? `in ${g.task} · ${g.reason}` : g.reason, "c7",
    tools.length ? h("div", { class: "tools" }, tools) : null,
    g.trace ? h("pre", { tabindex: 0, "aria-label": "The newest traceback of this group: frames without values" }, g.trace) : h("p", { class: "soft" }, g.why),
    g.letters.length ? h("div", { class: "below" }, letters(d)) : null);
}

/** Some dead letters of the chosen group, the oldest first. */
const letters = (d) => table("Dead letters of this group, the oldest first", [["Dead letter", ""], ["Tenant", "p2"], ["Tries", "num p3"], ["Died", "num"]],
  d.chosen.letters.map((m) => { const to = here(d.queue, "/message/" + encodeURIComponent(m.id)); return h("tr", { ...opens(to), "data-key": m.id },
    h("td", null, h("a", { href: to, class: "mono", title: m.id }, short(m.id)), h("span", { class: "sub" }, m.text)), h("td", { class: "p2" }, h("a", { class: "whom", href: here(d.queue, "/tenant/" + encodeURIComponent(m.key)) }, m.name)), h("td", { class: "num p3" }, n(m.deliveries)), h("td", { class: "num" }, moment(m.died, d.now))); }));

const HOW = { delayed: "waits for its next try", waiting: "waits", held_back: "waits", in_flight: "is being tried", dead: "is dead", done: "is done", unknown: "is done, or gone" };

function whose(d) {
  const g = d.chosen, newest = g.newest, to = here(d.queue, "/message/" + encodeURIComponent(newest.id));
  const names = g.whose.map((t, i) => [i ? ", " : "", link(here(d.queue, "/tenant/" + encodeURIComponent(t.key)), t.name)]);
  const others = g.others ? ` and ${g.are_many ? "" : "about "}${n(g.others)}${g.are_many ? " or more" : ""} more` : "";
  const rows = names.length ? [["Tenants", [names, others]]] : [];
  rows.push(["The newest", [link(to, h("span", { class: "mono", title: newest.id }, short(newest.id))), h("span", { class: "soft" }, ` ${HOW[newest.state]}`, newest.deliveries ? `, after ${plural(newest.deliveries, "delivery", "deliveries")}` : "")]]);
  if (newest.text) rows.push(["It said", newest.text]);
  return section("Whose", g.tenants ? `${g.are_many ? "at least " : ""}${plural(g.tenants, "tenant")} in the last 10 minutes` : null, "", h("div", { class: "card" }, facts(rows)));
}

const underWay = (d, page) => section("Under way", "on this queue, and what was in the last day", "", d.actions.map((j) => h("div", { class: "card job", "data-key": j.id },
  h("div", null, b(`${j.what}: ${j.line}`), h("span", { class: "soft" }, ` · ${j.of}`)),
  (j.stops && page.button("stop", { queue: d.queue, id: j.id }, "Stop", { small: true })) || (j.goes_on && page.button("go_on", { queue: d.queue, id: j.id }, "Go on", { small: true })) || null,
  j.live ? h("progress", { max: j.total ?? 1, value: j.total === null ? null : j.done, "aria-label": `${j.what}: ${j.line}` }) : null,
  h("div", { class: "soft" }, "by ", j.by, ", ", moment(j.started, d.now), j.note ? `: “${j.note}”` : ""))));
