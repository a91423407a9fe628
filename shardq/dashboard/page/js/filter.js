// What is done with many messages by a filter: a form that says which, and a button for each action that takes one.
import { h } from "./dom.js";

const FIELDS = [["shard_key", "Tenant"], ["task", "Task"], ["error", "Error"], ["older_than", "Older than, s"]];
const STATES = [["", "any state"], ["waiting", "waiting"], ["in_flight", "in flight"], ["delayed", "delayed"], ["retrying", "waiting for a next try"]];
const ACTIONS = [["retry_now", "Try now…"], ["redrive", "Redrive dead letters…"], ["cancel", "Cancel…", { bad: true }], ["delete", "Delete dead letters…", { bad: true }]];

/** about: {queue}, or also {shard_key} of the only tenant that it is about. Null for who may do none of it. */
export function byFilter(page, about) {
  const more = (event) => read(event.currentTarget.closest("details"), event.currentTarget.dataset.act);
  const buttons = ACTIONS.map(([action, label, options]) => page.button(action, about, label, { ...options, more })).filter(Boolean);
  if (!buttons.length) return null;
  const isOfOne = "shard_key" in about || "shard_key_base64" in about;
  const input = ([name, label]) => h("label", null, h("span", { class: "soft" }, label), h("input", { type: "text", name, autocomplete: "off", spellcheck: "false", autocapitalize: "off", maxlength: 500, inputmode: name === "older_than" ? "numeric" : null }));
  return h("details", { class: "twin filter" }, h("summary", null, "Do it to many, by a filter"),
    h("div", { class: "card" },
      h("div", { class: "tools" }, FIELDS.filter(([name]) => !isOfOne || name !== "shard_key").map(input),
        h("label", null, h("span", { class: "soft" }, "State, to cancel"), h("select", { name: "state" }, STATES.map(([value, text]) => h("option", { value }, text))))),
      h("div", { class: "tools" }, buttons),
      h("p", { class: "soft" }, "All that is said must hold. A dialog counts the messages before anything is done.")));
}

/** What the form says, as an action takes it: of the state only cancel asks, the others are each about one. */
function read(form, action) {
  const found = [...form.querySelectorAll("input, select")].map((each) => [each.name, each.value.trim()]);
  return Object.fromEntries(found.filter(([name, value]) => value && (name !== "state" || action === "cancel")));
}
