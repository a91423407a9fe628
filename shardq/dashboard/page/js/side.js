// The side: screens, queues, and how live all this is.
import { h, n, plural, span, zone } from "./dom.js";
import { patch } from "./patch.js";
import { here } from "./routes.js";
import { showKeys } from "./keys.js";
import { theme, nextTheme } from "./theme.js";

const nav = document.getElementById("nav"), foot = document.getElementById("foot");
const item = (to, css, isHere, ...text) => h("a", { href: to, class: css || null, "data-key": to, "aria-current": isHere ? "page" : null }, text);
const count = (x) => x === undefined || x === null ? null : h("span", { class: "n" }, n(x));

/** side: what the stream says; null before it said anything. */
export function drawSide(side, at) {
  const queues = (side?.queues ?? []).flatMap((q) => {
    const isOpen = at?.queue === q.name;
    const sub = (rest, text, x, what) => item(here(q.name, "/" + rest), "sub", at.at === rest, text, x ? h("span", { class: "n", title: what }, n(x)) : null);
    return [item(here(q.name), "", isOpen && at.at === "queue", h("span", { class: "dot", "data-tone": q.tone }), h("span", { class: "label" }, q.name), count(q.waiting)),
      ...(isOpen ? [sub("tenants", "Tenants", q.tenants, `${plural(q.tenants, "tenant")} with messages that wait`), sub("failures", "Failures", q.failures, `${plural(q.failures, "group")} of failures`), sub("settings", "Settings")] : [])];
  });
  const isAll = (name) => at?.queue === null && at.at === name;
  patch(nav, [item("#/", "", isAll("overview"), "Overview"), item("#/workers", "", isAll("workers"), "Workers", count(side?.workers)), item("#/schedules", "", isAll("schedules"), "Schedules", count(side?.schedules)), item("#/settings", "", isAll("settings"), "Settings"), ...(queues.length ? [h("h2", { "data-key": "queues" }, "Queues"), ...queues] : [])]);
}

/** Brings the entry of this screen into view. */
export const showHere = () => nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

/** live: {state, shown}; shown: when what is shown was so, ms of Date.now(). */
export function drawFoot(side, live) {
  const old = live.shown === null ? null : (Date.now() - live.shown) / 1000;
  const text = { opening: "connecting", live: "live", broken: "no connection", away: "Redis is away" }[live.state];
  const what = side === null ? "" : side.actions ? side.you.role : "read only", name = side?.you?.name;
  const you = [name === "anybody" ? "" : name, what].filter(Boolean).join(", ");
  patch(foot, [h("span", { class: "live", "data-state": live.state }, h("span", { class: "dot", "data-tone": live.state === "live" ? null : "bad" }), h("span", null, text, h("span", { class: "far" }, old === null ? "" : ` · ${old < 9.5 ? Math.round(old) + " s" : span(old)} old`))),
    h("span", { class: "far" }, [you, `times are ${zone()}`].filter(Boolean).join(" · ")),
    h("div", { class: "pair" }, h("button", { class: "btn small", type: "button", id: "theme", "aria-label": `Colours: ${theme()}`, onclick: () => { nextTheme(); drawFoot(side, live); } }, { system: "System", light: "Light", dark: "Dark" }[theme()]),
      h("button", { class: "btn small far", type: "button", id: "show-keys", onclick: showKeys }, "Keys ", h("kbd", null, "?")), side?.login ? h("button", { class: "btn small", type: "button", id: "logout", onclick: logOut }, "Log out") : null)]);
}

async function logOut() {
  await fetch("logout", { method: "POST", headers: { "x-shardq": "page" } }).catch(() => {});
  location.reload();
}
