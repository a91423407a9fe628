// Settings of a queue, and in short of all: what is set, by whom and until when, what differs from the file.
import { h, b, link, n, plural, tone } from "../dom.js";
import { facts, head, here, moment, opens, row, section, table, zero } from "../parts.js";

export const title = (d) => d.queue === null ? "Settings" : `Settings · ${d.queue}`;

export const draw = (d, page) => d.queue === null ? ofAll(d) : ofOne(d, page);

const more = (count, what) => count ? h("p", { class: "soft below" }, `${plural(count, what)} more.`) : null;

// All queues
function ofAll(d) {
  return [head([link("#/", "Overview"), b("settings")], d.said),
    h("div", { class: "grid" },
      section("Queues", d.file ? `beside ${d.file.name}` : "start the page with --declared to see what differs from a file", "", d.queues.length ? queues(d) : h("p", { class: "soft" }, "There is no queue."), more(d.more, "queue")),
      d.missing.length ? section("Not there", "the file declares them", "c6", h("div", { class: "card" }, h("ul", null, d.missing.map((name) => h("li", { "data-key": name }, name)))), more(d.more_missing, "queue")) : null,
      section("This page", null, "c6", h("div", { class: "card" }, facts([["Version", d.page.version], ["Payloads", d.page.payloads ? "shown" : "hidden"], ["File", d.file ? d.file.name : "none"]]))))];
}

const queues = (d) => table("Queues", [["Queue", ""], ["Streams", "num p2"], ["Pauses", "num p3"], ["Limits", "num p2"], ["Weights", "num p3"], ["Plans", "num p3"], ...(d.file ? [["Differences", "num"]] : [])],
  d.queues.map((q) => h("tr", { ...opens(q.to), "data-key": q.queue, "data-tone": q.problem ? "bad" : q.differences ? "warn" : null },
    h("td", null, row(q.to, q.queue), h("span", { class: "sub" }, q.problem ? tone("bad", q.problem) : q.own || "all settings are the usual ones")),
    h("td", { class: "num p2" }, n(q.streams)), zero(q.paused, n(q.paused), "num p3"), zero(q.limits, n(q.limits), "num p2"), zero(q.weights, n(q.weights), "num p3"), zero(q.plans, n(q.plans), "num p3"),
    d.file ? h("td", { class: q.differences || !q.declared ? "num" : "num zero" }, !q.declared ? h("span", { class: "soft" }, "not named") : q.differences ? tone("warn", b(n(q.differences))) : "0") : null)));

// One queue
function ofOne(d, page) {
  const given = [["paused", "Pauses"], ["limits", "Limits"], ["weights", "Weights"]].filter(([kind]) => d[kind].length);
  return [head([link("#/", "Overview"), link(here(d.queue), d.queue), b("settings")], d.said),
    h("div", { class: "grid" },
      d.differences.length ? section("Differences", `from ${d.file.name}: what shardq apply would change`, "", table("Differences from the file", [["Of", "p2"], ["Change", ""]], d.differences.map((x) => h("tr", { "data-key": x.what + x.line }, h("td", { class: "p2 nowrap" }, x.what), h("td", { class: "words" }, x.line)))), more(d.more_differences, "difference")) : null,
      d.findings.length ? section("Findings", "as shardq server doctor says them", "", h("div", { class: "card" }, h("ul", { class: "help" }, d.findings.map((x) => h("li", { "data-key": x.name + x.line }, h("span", { class: "what" }, x.line), h("span", { class: "effect" }, x.mend), h("span", { class: "sign soft" }, x.name))))) ) : null,
      section("Settings", "those that are not as usual first", "c7", settings(d)),
      h("div", { class: "c5 grid" },
        given.map(([kind, name]) => section(name, "who gave them, and until when", "", controls(d, kind, page), more(d[`more_${kind}`], { paused: "pause", limits: "limit", weights: "weight" }[kind]))),
        given.length ? null : section("Pauses, limits, weights", null, "", h("p", { class: "soft" }, "Nobody gave any.")),
        d.plans.length ? section("Plans", null, "", table("Plans", [["Plan", ""], ["Limits", ""], ["Tenants", "num"]], d.plans.map((x) => h("tr", { "data-key": x.name }, h("td", { class: "name" }, x.name), h("td", null, x.what), zero(x.tenants))))) : null,
        section("What people did", d.journal ? "the last, as the journal has it" : null, "", d.done.length ? h("div", { class: "card" }, facts(d.done.map((e) => [moment(e.time, d.now), deed(d, e)]))) : h("p", { class: "soft" }, d.journal ? "Nothing that the journal still has." : "The queue keeps no journal: set journal to how many events it is to keep."))))];
}

/** Those that somebody set, or that the file says otherwise; the others are folded away. */
function settings(d) {
  const named = d.settings.some((x) => x.file !== null), [shown, usual] = [d.settings.filter((x) => x.set || differs(x)), d.settings.filter((x) => !x.set && !differs(x))];
  return [shown.length ? settingTable("Settings that are not as usual", shown, named) : null,
    h("details", { class: "twin" }, h("summary", null, `${plural(usual.length, "other setting")} as usual`), settingTable("Settings that are as usual", usual, named))];
}

const differs = (x) => x.file !== null && x.file !== x.value;
const settingTable = (label, rows, named) => table(label, [["Setting", ""], ["Value", "num"], ["Usually", named ? "num p2" : "num"], ...(named ? [["In the file", "num"]] : [])],
  rows.map((x) => h("tr", { "data-key": x.name, "data-tone": differs(x) ? "warn" : null },
    h("td", { class: x.set ? "name" : null }, x.name), h("td", { class: x.set ? "num" : "num soft" }, x.set ? b(x.value) : x.value), h("td", { class: named ? "num soft p2" : "num soft" }, x.usual),
    named ? h("td", { class: "num" }, x.file === null ? h("span", { class: "soft" }, "–") : differs(x) ? tone("warn", b(x.file)) : x.file) : null)));

const tenant = (d, x) => x.name === "" ? b("the whole queue") : x.key === null ? h("span", { class: "whom", title: x.name.length > 20 ? x.name : null }, x.name) : h("a", { class: "whom", href: here(d.queue, "/tenant/" + encodeURIComponent(x.key)), title: x.name.length > 20 ? x.name : null }, x.name);

function controls(d, kind, page) {
  const about = (x) => ({ queue: d.queue, ...(x.name === "" ? {} : { shard_key: x.key }) });
  const act = { paused: (x) => page.button("resume", about(x), "End…", { small: true }), limits: (x) => page.button("limit", about(x), "Change…", { small: true }), weights: (x) => page.button("weight", about(x), "Change…", { small: true }) }[kind];
  const buttons = d[kind].map((x) => x.key === null && x.name !== "" ? null : act(x)), acts = buttons.some(Boolean);
  return table(kind, [["Tenant", ""], ...(kind === "paused" ? [] : [[kind === "limits" ? "Limits" : "Weight", ""]]), ["Until", "num"], ...(acts ? [[h("span", { class: "unseen" }, "Do"), ""]] : [])],
    d[kind].map((x, i) => h("tr", { "data-key": x.key ?? x.name, "data-tone": kind === "paused" ? "pause" : null },
      h("td", null, tenant(d, x), h("span", { class: "sub" }, x.by ? `by ${x.by}` : "nobody knows by whom", x.since ? [", ", moment(x.since, d.now)] : "", x.note ? `: “${x.note}”` : "")),
      kind === "paused" ? null : h("td", { class: "words" }, x.what),
      h("td", { class: "num" }, x.until === null ? h("span", { class: "soft" }, "no end") : moment(x.until, d.now)),
      acts ? h("td", { class: "num" }, buttons[i]) : null)));
}

const DID = { weighted: "changed the weight of ", limited: "changed the limits of ", paused: "paused ", resumed: "ended the pause of ", configured: "changed settings of ", plan_set: "set a plan of ", plan_deleted: "deleted a plan of ", stopped: "stopped an action in " };
const deed = (d, e) => [b(e.by || "somebody"), " ", DID[e.kind] ?? `${e.kind} `, e.name === "" ? "the queue" : tenant(d, e), e.values ? h("span", { class: "soft" }, ` (${e.values})`) : "", e.until ? [" until ", moment(e.until, d.now)] : "", e.note ? `: “${e.note}”` : ""];
