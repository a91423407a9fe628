// Schedules of all queues: what runs next, what will be late and why.
import { h, b, link, n, plural, span, tone } from "../dom.js";
import { head, here, moment, section, table } from "../parts.js";

export const title = () => "Schedules";

export function draw(d, page) {
  return [head([link("#/", "Overview"), b("schedules")], d.said),
    d.schedules.length ? h("div", { class: "grid" }, section("Schedules", "stored ones, the next first", "", schedules(d, page), d.more ? h("p", { class: "soft below" }, `${n(d.more)} more, which come later.`) : null)) : null];
}

const TONES = { failed: "bad", retry: "warn", waits: "warn" }, CSS = { failed: "x", retry: "w", waits: "w", runs: "w" };
const COUNTED = [["done", "done"], ["failed", "failed"], ["retry", "tried again"], ["waits", "waiting"], ["runs", "under way"]];

/** What became of the last calls, the newest last. */
function dots(kinds) {
  if (!kinds.length) return h("span", { class: "soft" }, "none known");
  const words = COUNTED.map(([kind, text]) => [kinds.filter((k) => k === kind).length, text]).filter(([count]) => count).map(([count, text]) => `${count} ${text}`).join(", ");
  return h("span", { class: "runs", role: "img", "aria-label": words, title: words }, kinds.map((k) => h("i", { class: CSS[k] ?? null })));
}

function schedules(d, page) {
  const buttons = d.schedules.map((x) => page.button("run_now", { queue: x.queue, schedule: x.name }, "Run now…", { small: true })), acts = buttons.some(Boolean);
  return table("Schedules", [["Schedule", ""], ["When", "p2"], ["Next", "num"], ["Last run", "num p2"], ["Last runs", "p3"], ["For", "p3"], ["Catches up", "p3"], ...(acts ? [[h("span", { class: "unseen" }, "Do"), ""]] : [])],
    d.schedules.map((x, i) => h("tr", { "data-key": x.key, "data-tone": x.last?.kind === "failed" ? "bad" : x.paused ? "pause" : x.late || x.wait ? "warn" : null },
      h("td", null, h("span", { class: "name", title: x.name.length > 24 ? x.name : null }, x.name), h("span", { class: "sub" }, x.task ? [x.task, " in "] : "a message in ", link(x.to, x.queue), x.late ? [" · ", tone("warn", x.late)] : "", x.wait ? [" · ", tone("warn", `${plural(x.wait, "call")} of the last ${n(x.runs.length)} ${x.wait === 1 ? "waits" : "wait"}`)] : "")),
      h("td", { class: "p2" }, x.when),
      h("td", { class: "num" }, x.paused ? h("span", { class: "tag pause" }, "paused") : x.next === null ? h("span", { class: "soft" }, "never") : [b("in ", span(x.next - d.now)), h("span", { class: "sub" }, moment(x.next, d.now))]),
      h("td", { class: "num p2" }, x.last ? [link(here(x.queue, "/message/" + encodeURIComponent(x.last.id)), TONES[x.last.kind] ? tone(TONES[x.last.kind], x.last.text) : x.last.text), h("span", { class: "sub" }, moment(x.last.slot, d.now))] : h("span", { class: "soft" }, "–")),
      h("td", { class: "p3" }, dots(x.runs)),
      h("td", { class: "p3" }, x.tenant), h("td", { class: "p3" }, x.catch_up),
      acts ? h("td", { class: "num" }, buttons[i]) : null)));
}
