// Message: where it is, what happened, and what comes next.
import { h, link, n, clock } from "../dom.js";
import { facts, head, here, moment, section, told } from "../parts.js";
import { short } from "./tenant.js";

export const title = (d) => `Message ${short(d.id)} · ${d.queue}`;

export function draw(d, page) {
  return [head([link("#/", "Overview"), link(here(d.queue), d.queue), "message", h("span", { class: "mono", title: d.id }, short(d.id))], d.said),
    tools(d, page),
    h("div", { class: "grid" },
      section("What happened", d.story_note || "from the journal", "c7", h("ol", { class: "story" }, d.story.map((e, i) => event(e, i)), d.next ? next(d.next) : null), d.more_events ? h("p", { class: "soft" }, `${n(d.more_events)} events more`) : null),
      section("What it is", null, "c5", h("div", { class: "card" }, facts([...d.facts.map(([label, words]) => [label, label === "Trace" ? h("span", { class: "mono" }, told(words)) : told(words)]), d.headers.length ? ["Headers", headers(d)] : null, d.payload.text ? null : ["Payload", h("span", { class: "soft" }, d.payload.why)]]))),
      d.payload.text ? section("Payload", null, "", h("pre", { tabindex: 0, "aria-label": "The payload" }, d.payload.text)) : null,
      d.error ? section("Last error", d.error.whose, "", h("pre", { tabindex: 0, "aria-label": "The last error" }, error(d.error))) : null)];
}

function tools(d, page) {
  const it = { queue: d.queue, message_id: d.id };
  return h("div", { class: "tools acts" },
    d.can_hasten ? page.button("retry_now", it, "Try now…") : null,
    d.can_redrive ? page.button("redrive", it, "Send it again…") : null,
    d.can_redrive ? page.button("delete", it, "Delete…", { bad: true }) : null,
    d.can_cancel ? page.button("cancel", it, "Cancel…", { bad: true }) : null,
    h("button", { class: "btn", type: "button", onclick: (e) => copy(e.currentTarget, d.id) }, "Copy id"));
}

/** Without a secure connection a browser has no clipboard for scripts: then the id is selected, to be copied by hand. */
async function copy(button, text) {
  try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; }
  catch { button.textContent = text; getSelection().selectAllChildren(button); }
}

const event = (e, i) => h("li", { class: e.css, "data-key": `${i} ${e.kind}` }, e.kind === "more" ? h("time") : h("time", { datetime: new Date(e.at * 1000).toISOString(), title: new Date(e.at * 1000).toString() }, clock(e.at, true)), h("div", null, h("b", null, e.says), " ", told(e.text), e.client ? h("span", { class: "soft" }, " · ", link("#/workers", e.client)) : null));
const next = (x) => h("li", { class: "next", "data-key": "next" }, x.at === null ? h("time", null, "next") : h("time", null, x.is_certain ? clock(x.at, true) : `≈ ${clock(x.at)}`), h("div", { class: "soft" }, "will be ", x.text));
const headers = (d) => d.headers.map(([name, value], i) => [i ? ", " : "", name, value ? [" ", h("span", { class: "soft mono" }, value)] : null]);
const error = (x) => [x.text || x.type, x.trace].filter(Boolean).join("\n\n");
