// Joins the parts: an address says which screen is shown, a stream brings what it shows, and what is new is drawn in place.
import { h, clock, link, when } from "./dom.js";
import { button } from "./actions.js";
import { listen } from "./keys.js";
import { Live } from "./live.js";
import { head, setNow } from "./parts.js";
import { patch, takeHeld } from "./patch.js";
import { keep, release } from "./steady.js";
import { address, here, route, withQuery } from "./routes.js";
import { drawFoot, drawSide, showHere } from "./side.js";

const main = document.getElementById("main"), spoken = document.getElementById("said");
const NO_SCREEN = "There is no such screen.";
const PATIENCE = 150; // ms without another letter, until a search is asked for
const SOON = 400; // ms without an answer, until it is said that one is awaited

let at = null; // the route that is shown
let screen = null; // its module
let data = null; // what its stream brought last
let gone = null; // why there is nothing to show
let failed = null; // why what is shown is not new
let refusal = ""; // why the server lets nobody look
let away = null; // {text, since} while Redis does not answer
let side = null;
let asked; // what the screen was asked for when it was drawn last
let asking = 0, wantsSearch = false, isNew = false, isDue = false;

const live = new Live({
  scene: (found) => { if (!at) return; [data, gone, away, failed, refusal] = [found, null, null, null, ""]; drawSoon(); },
  side: (found) => { const isFirst = side === null; side = found; drawSide(side, at); drawFoot(side, live); if (isFirst) showHere(); drawSoon(); },
  gone: (text) => { if (!at) return; [data, gone, away, failed] = [null, text, null, null]; drawSoon(); },
  failed: (text) => { if (!at) return; [failed, away] = [text, null]; drawSoon(); },
  away: (found) => { if (!away) say(found.text); away = found; drawSoon(); },
  refused(status, text) {
    if (status === 401) location.reload(); // the session is over: the server asks who it is
    else if (status === 404) { [data, gone] = [null, text || NO_SCREEN]; }
    refusal = text;
    drawSoon();
  },
  state: () => { if (live.state === "broken") say("The connection to this page's server is broken."); drawFoot(side, live); drawSoon(); },
});

/** What a screen gets besides its data. */
const page = {
  here,
  get query() { return at.query; },
  get side() { return side; },
  button: (action, args, label, options) => button(action, args, label, { ...options, side }),
  /** Asks for this screen otherwise ({order: "dead"}), and keeps that in the address. */
  ask(query, isTyped = false) {
    history.replaceState(null, "", withQuery(query));
    clearTimeout(asking);
    asking = setTimeout(() => { at = route(); watch(); }, isTyped ? PATIENCE : 0);
  },
  redraw: () => drawSoon(),
};

function say(text) { spoken.textContent = text; }

const watch = () => live.watch(address(at));

async function go() {
  const before = at;
  at = route();
  drawSide(side, at);
  showHere();
  if (before && at && before.key === at.key && screen) { watch(); return; }
  [screen, data, gone, failed, isNew] = [null, null, at ? null : NO_SCREEN, null, true];
  document.title = `${at?.title ?? "Not there"} · shardq`;
  if (before) { scrollTo(0, 0); main.focus({ preventScroll: true }); }
  if (!at) { live.watch(address(route("#/"))); draw(); return; } // for the side, which leads on
  watch();
  const wanted = at;
  setTimeout(() => { if (at === wanted && isNew && !main.querySelector("#alarm")) main.replaceChildren(h("p", { class: "soft" }, "One moment: the queues are asked.")); }, SOON);
  const module = await import(`./screens/${at.scene}.js`).catch(() => null);
  if (at?.key !== wanted.key) return;
  screen = module;
  if (!module) failed = "This screen could not be loaded: load the page again.";
  drawSoon();
}

function drawSoon() {
  if (isDue) return;
  isDue = true;
  // A frame, so that several events are drawn once; a hidden page has no frames.
  const once = () => { isDue = false; draw(); };
  document.hidden ? setTimeout(once) : requestAnimationFrame(once);
}

function draw() {
  setNow(data?.now ?? Date.now() / 1000);
  const shown = gone !== null ? nothing(gone) : screen && data ? screen.draw(data, page) : alarm() && [head([link("#/", "Overview")], { line: "There is nothing to show yet.", tone: "warn" })];
  if (!shown) return;
  const nodes = [alarm(), ...shown].flat(9).filter(Boolean);
  if (isNew || asked !== at?.asked) release();
  asked = at?.asked;
  if (isNew) main.replaceChildren(...nodes);
  else patch(main, nodes);
  keep(main);
  if (screen?.title && data) document.title = `${screen.title(data)} · shardq`;
  if (isNew) { isNew = false; say(main.querySelector("h1")?.textContent ?? ""); }
  if (wantsSearch && document.getElementById("search")) { wantsSearch = false; document.getElementById("search").focus(); }
}

const nothing = (text) => head([link("#/", "Overview")], { line: text, tone: "warn" });

/** What is wrong with the page itself: then what it shows is of before. */
function alarm() {
  const old = live.shown === null ? "" : ` What you see is of ${clock(live.shown / 1000, true)}.`;
  if (live.state === "broken") return h("p", { class: "alarm", id: "alarm" }, h("b", null, "No connection"), ` to the server of this page since ${clock(live.since / 1000, true)}. ${refusal && refusal + " "}It is tried again.${old}`);
  if (away) return h("p", { class: "alarm", id: "alarm" }, h("b", null, away.text), ` Since ${away.since ? when(away.since, Date.now() / 1000) : clock(live.since / 1000, true)}; the page goes on by itself.${old}`);
  if (failed) return h("p", { class: "alarm", id: "alarm" }, failed, old);
  return null;
}

// What was held in place under the pointer, or with the focus, takes its place once it is let go.
const letGo = () => setTimeout(() => { if (takeHeld()) drawSoon(); });
main.addEventListener("pointerout", letGo);
main.addEventListener("focusout", letGo);

listen({
  queue: (place) => { const q = side?.queues?.[place]; return q && here(q.name); },
  find() {
    const to = route(); // what the address says: a quick person's next key comes before its screen is drawn
    const search = to?.key === at?.key && document.getElementById("search"), queue = to?.queue ?? side?.queues?.[0]?.name;
    if (search) search.focus();
    else if (queue) { wantsSearch = true; location.hash = here(queue, "/tenants"); }
  },
});
addEventListener("hashchange", go);
main.addEventListener("toggle", () => { release(); keep(main); }, true);
let wide = innerWidth;
addEventListener("resize", () => { if (wide !== innerWidth) { wide = innerWidth; release(); drawSoon(); } });
setInterval(() => { if (!document.hidden) drawFoot(side, live); }, 1000);
drawSide(side, null);
drawFoot(side, live);
go();
