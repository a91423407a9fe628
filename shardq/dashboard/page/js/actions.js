// Buttons that change something, and their dialog. It says what will be done, as the server reckons it, before it is
// done; what is chosen in it is reckoned again. What takes long shows how far it is, and goes on when it is closed.
import { h, b } from "./dom.js";
import { told } from "./parts.js";
import { patch } from "./patch.js";

const TYPING = 250; // ms without another letter, until what is typed is reckoned
const GLANCE = 1_000; // ms between two looks at what goes on
const LATER = 600; // ms after which a person sees that something takes its time
const OF_ONE = "message_id"; // an action on the message of this name, and not on many
const LOST = "No answer came: it may have been done, or not. Look before you do it again.";

const dialog = document.body.appendChild(h("dialog", { id: "act", class: "act", "aria-labelledby": "act-title" }));
let open = null; // what the dialog is about, while it is open

/** A button for an action, or null for who may not do it. args: {queue, shard_key, …}; options: {side, bad, first, small, more},
    of which `more` tells further arguments when it is pressed. */
export function button(action, args, label, options = {}) {
  const { side, bad, first, small, more } = options;
  if (!side?.actions || !side.may?.includes(OF_ONE in args ? `${action} one` : action)) return null;
  const about = Object.entries(args).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const css = ["btn", bad && "bad", first && "first", small && "small"].filter(Boolean).join(" ");
  return h("button", { class: css, type: "button", "data-act": action, "aria-haspopup": "dialog",
    onclick: (e) => { if (!open) open = new Dialog(action, { ...Object.fromEntries(about), ...more?.(e) }, e.currentTarget); } }, label);
}

async function call(path, options) {
  const answer = await fetch(path, { ...options, headers: { accept: "application/json", ...options?.headers } });
  if (answer.status === 401) location.reload();
  const body = await answer.json().catch(() => ({}));
  return { ok: answer.ok, isGone: answer.status === 404, text: body.text ?? (answer.ok ? "" : `The server says ${answer.status}.`), body };
}
const ask = (action, args, signal) => call(`ask/${action}?${new URLSearchParams(args)}`, { signal });
const act = (action, ticket, fields) => call(`act/${action}`, { method: "POST", headers: { "content-type": "application/json", "x-shardq": "1" }, body: JSON.stringify({ ticket, fields }) });

dialog.addEventListener("close", () => { open?.end(); open = null; });

class Dialog {
  constructor(action, args, opener) {
    [this.action, this.args, this.opener] = [action, args, opener];
    this.said = null; // what the server says of it
    this.chosen = {}; // values of fields that are not as the server had them
    this.isReady = false; // whether what is shown is what would be done
    this.isBusy = true; // whether it is reckoned
    dialog.replaceChildren(h("h2", { id: "act-title" }, "…"), h("p", { class: "soft", role: "status" }, "Reckoning what it does…"), this.tools(null));
    dialog.showModal();
    this.reckon();
  }

  end() {
    this.asking?.abort();
    clearTimeout(this.later);
    document.removeEventListener("visibilitychange", this.looks);
    // The opener has the focus again, unless it has gone meanwhile.
    if (!this.opener.isConnected) document.getElementById("main").focus({ preventScroll: true });
  }

  /** Asks what would be done, of what is chosen now. `trouble` stays to be read. */
  async reckon(trouble = "") {
    [this.isReady, this.isBusy] = [false, true];
    this.asking?.abort();
    const asking = this.asking = new AbortController();
    this.mark();
    let found;
    try { found = await ask(this.action, { ...this.args, ...this.chosen }, asking.signal); } catch { found = { ok: false, text: "The server of this page does not answer." }; }
    if (asking.signal.aborted || open !== this) return;
    if (found.ok) this.show(found.body, trouble);
    else this.refuse([trouble, found.text].filter(Boolean).join(" "));
  }

  /** Shows what would be done. The fields stay, so that nobody's typing is disturbed, unless there are others. */
  show(said, trouble) {
    const isFirst = !this.form || this.said?.possible !== said.possible || this.said?.danger !== said.danger;
    this.said = said;
    [this.isReady, this.isBusy] = [said.possible, false];
    if (isFirst) this.build(); else patch(this.lines, lines(said));
    this.title.textContent = said.title;
    this.alert.textContent = trouble;
    this.mark();
  }

  refuse(text) {
    this.isBusy = false;
    if (!this.form) dialog.replaceChildren(this.title = h("h2", { id: "act-title" }, "It cannot be done"), h("p", { class: "bad", role: "alert" }, text), this.tools(null));
    else this.alert.textContent = text;
    this.mark();
  }

  build() {
    const { said } = this;
    this.title = h("h2", { id: "act-title" });
    this.lines = h("ul", { class: "says", id: "act-says", "aria-live": "polite" }, lines(said));
    this.alert = h("p", { class: "bad", role: "alert" });
    this.typed = said.danger ? h("input", { type: "text", name: "typed", autocomplete: "off", spellcheck: "false", autocapitalize: "off", required: true, oninput: () => this.mark() }) : null;
    const fields = said.fields.map((each) => this.field(each));
    this.form = h("form", { onsubmit: (e) => { e.preventDefault(); this.do(); } }, fields,
      this.typed ? h("label", { class: "field" }, h("span", null, "Type ", b(said.danger), " to go on"), this.typed) : null,
      this.alert, this.tools(said.possible ? said.verb : null));
    dialog.replaceChildren(this.title, this.lines, this.form);
    (this.typed ?? this.form.querySelector("input, select") ?? this.form.querySelector("[data-close]")).focus();
  }

  field(each) {
    const reckon = (wait) => { if (each.said) { this.chosen = this.values(true); [this.isReady, this.isBusy] = [false, true]; this.mark(); clearTimeout(this.later); this.later = setTimeout(() => this.reckon(), wait); } };
    const name = h("span", null, each.label, each.hint ? h("span", { class: "soft" }, ` ${each.hint}`) : null);
    if (each.kind === "flag") {
      const box = h("input", { type: "checkbox", name: each.name, checked: each.value === "1", onchange: () => reckon(0) });
      return h("label", { class: "field flag" }, box, name);
    }
    const input = each.kind === "choice"
      ? h("select", { name: each.name, onchange: () => reckon(0) }, each.choices.map(([value, words]) => h("option", { value, selected: value === each.value }, words)))
      : h("input", { type: "text", name: each.name, value: each.value, maxlength: each.longest, autocomplete: "off", inputmode: each.kind === "number" ? (each.whole ? "numeric" : "decimal") : null, oninput: () => reckon(TYPING) });
    return h("label", { class: "field" }, name, input);
  }

  /** The values of the fields; of those alone on which depends what is said. */
  values(saidOnly = false) {
    const found = {};
    for (const each of this.said.fields) {
      if (saidOnly && !each.said) continue;
      const input = this.form.elements[each.name];
      found[each.name] = each.kind === "flag" ? (input.checked ? "1" : "") : input.value.trim();
    }
    return found;
  }

  tools(verb) {
    this.go = verb ? h("button", { class: this.said.bad ? "btn bad" : "btn first", type: "submit" }, verb) : null;
    return h("div", { class: "tools" }, this.go, h("button", { class: "btn", type: "button", "data-close": true, onclick: () => dialog.close() }, "Close"));
  }

  /** Lets it be done only while what is shown is what would be done, and the name is typed. */
  mark() {
    this.lines?.setAttribute("aria-busy", String(this.isBusy));
    if (this.go) this.go.disabled = !this.isReady || (this.typed !== null && this.typed.value.trim() !== this.said.danger);
  }

  async do() {
    if (!this.isReady || this.go.disabled) return;
    this.isReady = false;
    this.alert.textContent = "";
    this.mark();
    const wait = setTimeout(() => this.alert.before(h("progress", { class: "wait", "aria-label": "It is being done" })), LATER);
    let found;
    try { found = await act(this.action, this.said.ticket, { ...this.values(), ...(this.typed ? { typed: this.typed.value.trim() } : {}) }); } catch { found = { ok: false, text: LOST, body: {} }; }
    if (!found.ok && !found.body.text) found.text = LOST; // a proxy gave up, and not the page's server
    clearTimeout(wait);
    if (open !== this) return;
    dialog.querySelector("progress.wait")?.remove();
    if (found.ok) this.done(found.body);
    else if (found.body.ask) { this.chosen = this.values(true); this.show(found.body.ask, found.text); }
    else this.reckon(found.text);
  }

  done({ said, queue, handle }) {
    this.form = null;
    this.status = h("p", { role: "status" }, said);
    this.bar = handle ? h("div", { class: "job" }) : null;
    dialog.replaceChildren(this.title, this.status, this.bar ?? "", this.tools(null));
    dialog.querySelector("[data-close]").focus();
    if (!handle) return;
    this.looks = () => { clearTimeout(this.later); if (!document.hidden) this.look(queue, handle, said); };
    document.addEventListener("visibilitychange", this.looks);
    this.look(queue, handle, said);
  }

  /** Shows how far it is, until it is over. */
  async look(queue, id, said) {
    const found = await call(`handle?${new URLSearchParams({ queue, id })}`).catch(() => null);
    if (open !== this || document.hidden) return;
    if (found?.ok) {
      const one = found.body;
      if (!one.live) { // not in place: what has gone would stay under the pointer, which stopped it
        this.status.textContent = `${one.line}.`;
        this.bar.replaceChildren(bar(one));
        dialog.querySelector("[data-close]").focus();
        return;
      }
      this.status.textContent = said;
      const stop = h("button", { class: "btn small", type: "button", "data-key": "stop", disabled: one.state === "stopping", onclick: () => this.stop(queue, id, said) }, "Stop");
      patch(this.bar, [h("span", { "data-key": "line" }, one.line), stop, bar(one), h("p", { class: "soft", "data-key": "on" }, "It goes on when this is closed.")]);
    } else if (found) {
      this.status.textContent = found.text;
      if (found.isGone) return;
    }
    this.later = setTimeout(() => this.look(queue, id, said), GLANCE);
  }

  /** What has been begun here is stopped without another dialog: nothing is lost by it. */
  async stop(queue, id, said) {
    try {
      const asked = await ask("stop", { queue, id });
      if (asked.ok && asked.body.ticket) await act("stop", asked.body.ticket, {});
    } catch { /* the next look says how it is */ }
    clearTimeout(this.later);
    if (open === this) this.look(queue, id, said);
  }
}

const lines = (said) => said.lines.map((each, i) => h("li", { "data-key": `${i}`, "data-tone": each.tone || null }, told(each.parts)));

/** How far an action on many messages is, as a bar. */
export const bar = (one) => h("progress", { "data-key": "bar", max: one.total || (one.live ? null : 1), value: one.total === null ? (one.live ? null : 1) : one.total ? one.done : 1, "aria-label": one.line });
