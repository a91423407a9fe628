// What several screens are made of.
import { h, b, n, plural, clock, when, MEANS } from "./dom.js";
export { here } from "./routes.js";

let now = Date.now() / 1000;
/** Tells the server's time of what is drawn, which decides how times in sentences are said. */
export const setNow = (at) => { now = at; };

/** Words of a sentence: a text, or parts [text, mark, to, at]. Mark: true (bold), or "good", "warn", "bad"; `to` is where
    it leads; `at` is the time that it says, which is said in the browser's zone. What is missing at the end is none. */
export const told = (words) => typeof words === "string" ? words : (words ?? []).map(part);
function part(one) {
  if (typeof one === "string") return one;
  const [text, mark, to, at] = one;
  const said = at === undefined ? text : moment(at, now);
  const marked = !mark ? said : mark === true ? b(said) : h("span", { class: mark }, said);
  return to ? h("a", { href: to }, marked) : marked;
}

/** The top of a screen: where one is, and the answer. `said` is {line, more, tone}. */
export const head = (crumbs, said) => [
  h("p", { class: "crumbs" }, crumbs.flatMap((c, i) => (i ? [h("span", { "aria-hidden": "true" }, "/"), c] : [c]))),
  h("div", { class: "answer", "data-room": "answer" }, h("h1", { class: "verdict", "data-tone": said.tone }, told(said.line)), said.more?.length ? h("p", { class: "why-line" }, told(said.more)) : null),
];
/** `title` names the room that is kept for it; one that changes is a list: [title, name of the room]. */
export const section = (name, note, css, ...children) => {
  const [title, room] = Array.isArray(name) ? name : [name];
  return h("section", { class: css, "data-room": `section ${room ?? title}` }, h("h2", { "data-room": `head ${room ?? title}` }, title, note ? h("span", { class: "soft" }, note) : null), children);
};
/** A card that keeps the room that it once had. */
export const card = (room, ...children) => h("div", { class: "card", "data-room": room }, children);
/** A row of figures: [name, value, what is said small]. */
export const figures = (...pairs) => h("dl", { class: "figures" }, pairs.filter(Boolean).map(([name, value, small]) => h("div", { "data-room": `figure ${name}` }, h("dt", null, name), h("dd", null, value, small ? h("small", null, " ", small) : null))));
/** The name in a row, which opens what it names. */
export const row = (to, name) => h("a", { href: to, class: "plain name", title: name.length > 24 ? name : null }, name);
export const zero = (x, text = n(x), css = "num") => h("td", { class: x ? css : css + " zero" }, x ? text : "0");
/** What a <tr> has that opens a screen: by click, and with Enter. */
export const opens = (to) => ({ tabindex: 0, "data-open": to, onclick: (e) => { if (!e.target.closest("a,button,input,label") && !String(getSelection())) location.hash = to; } });
/** columns: [text, css, more attributes]; rows: <tr data-key>. */
export const table = (label, columns, rows) => h("div", { class: "card pad0 wide" }, h("table", { "aria-label": label }, h("thead", null, h("tr", null, columns.map(([text, css, more]) => h("th", { scope: "col", class: css || null, ...more }, text)))), h("tbody", null, rows)));
export const legend = (...reasons) => h("p", { class: "legend" }, reasons.map((r) => h("span", { class: "key " + r }, MEANS[r][0])));
export const facts = (pairs) => h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
/** A moment, with the whole date on demand. */
export const moment = (t, now, seconds = false) => h("time", { datetime: t > 0 && t < 8e12 ? new Date(t * 1000).toISOString() : null }, seconds ? clock(t, true) : when(t, now));
/** What would help: [{what, text, helps}]. */
export const helpList = (found, none) => found.length
  ? h("ul", { class: "help" }, found.map((x) => h("li", { "data-key": x.what }, h("span", { class: "what" }, x.what), h("span", { class: "effect" }, told(x.text)), h("span", { class: "sign " + (x.helps ? "good" : "soft") }, x.helps ? "helps" : "no use"))))
  : h("p", { class: "soft" }, none);
/** The slots of a worker as small bars. */
export const slots = (busy, all, stuck = 0) => h("span", { class: "slots", role: "img", "aria-label": `${n(busy)} of ${plural(all, "slot")} busy` }, Array.from({ length: Math.min(all, 64) }, (_, i) => h("i", { class: i < busy ? (i < stuck ? "stuck" : "on") : null })));
