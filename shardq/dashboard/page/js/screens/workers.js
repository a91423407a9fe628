// Workers of all queues: who works on what, who reads what, who is gone.
import { h, b, link, n, age, pct, size, span, tone } from "../dom.js";
import { facts, head, here, moment, opens, row, section, slots, table, zero } from "../parts.js";

export const title = () => "Workers";

export function draw(d) {
  return [head([link("#/", "Overview"), b("workers")], d.said),
    h("div", { class: "grid" },
      section("Workers", "each says every 5 s that it lives; one that is silent for 30 s is gone", "", d.workers.length ? workers(d) : h("p", { class: "soft" }, "None."), d.more ? h("p", { class: "soft below" }, `${n(d.more)} more, which work less.`) : null),
      section("Who reads what", "slots count for each queue that they are for", "c6", d.queues.length ? reading(d) : h("p", { class: "soft" }, "There is no queue."), d.more_queues ? h("p", { class: "soft below" }, `${n(d.more_queues)} more queues.`) : null),
      section("Gone in the last hour", null, "c6", d.gone.length ? h("div", { class: "card" }, gone(d)) : h("p", { class: "soft" }, "None."), d.more_gone ? h("p", { class: "soft below" }, `${n(d.more_gone)} more.`) : null))];
}

const queues = (w) => [w.queues.map((name, i) => [i ? ", " : "", link(here(name), name)]), w.more ? ` and ${n(w.more)} more` : ""];

const workers = (d) => table("Workers", [["Worker", ""], ["Queues", "p2"], ["Slots", ""], ["Longest job", "num"], ["Done a minute", "num p2"], ["Fail", "num p2"], ["Memory", "num p3"], ["Up since", "num p3"], ["Version", "p3"], ["Heard of", "num p2"]],
  d.workers.map((w) => h("tr", { "data-key": w.id, "data-tone": w.unusual ? "warn" : null },
    h("td", null, h("span", { class: "name", title: w.id }, w.id), h("span", { class: "sub" }, w.host === w.id ? `pid ${w.pid}` : `${w.host}, pid ${w.pid}`, stuck(w))),
    h("td", { class: "p2 words" }, queues(w)),
    h("td", null, slots(Math.round(w.busy), w.slots, w.unusual ? 1 : 0)),
    h("td", { class: w.longest === null ? "num zero" : "num" }, span(w.longest)),
    zero(w.done, n(w.done), "num p2"),
    h("td", { class: w.failed ? "num p2" : "num zero p2" }, w.share > 0.1 ? tone("bad", pct(w.share)) : pct(w.share)),
    h("td", { class: "num p3" }, size(w.memory), w.limit ? h("span", { class: "sub" }, `of ${size(w.limit)}`) : null),
    h("td", { class: "num p3" }, moment(w.started, d.now)), h("td", { class: "p3 words" }, w.version), h("td", { class: "num p2" }, age(d.now - w.heard), " ago"))));

/** What it has worked on for unusually long, with the message that it is. */
function stuck(w) {
  if (!w.unusual) return null;
  const kind = `one ${w.task || "message"}`, job = w.message ? link(here(w.message.queue, "/message/" + encodeURIComponent(w.message.id)), kind) : kind;
  return [" · ", h("span", { class: "warn" }, job, ` for ${span(w.longest)}`, w.times ? `, ${n(w.times)} times its usual time` : "")];
}

const reading = (d) => table("Queues and slots", [["Queue", ""], ["Workers", "num"], ["Slots", "num"], ["Busy", "num p2"], ["Waiting", "num"]],
  d.queues.map((q) => h("tr", { ...opens(q.to), "data-key": q.queue, "data-tone": q.unread ? "bad" : null },
    h("td", null, row(q.to, q.queue)), h("td", { class: q.workers || q.unread ? "num" : "num zero" }, q.workers ? n(q.workers) : q.unread ? tone("bad", b("none")) : "none"), zero(q.slots), zero(q.busy, n(q.busy), "num p2"), zero(q.waiting, n(q.waiting)))));

const gone = (d) => facts(d.gone.map((w) => [moment(w.heard, d.now, true), [b(w.id), " (", queues(w), ") ", w.ended ? w.how : tone("bad", w.how)]]));
