// A stream of what a screen shows. It says when it is broken, goes on by itself, and rests while nobody looks.
const FIRST_PAUSE = 200; // ms until the first try after a stream ended, as each does once in a while
const LONGEST_PAUSE = 8_000; // ms between two tries
const SILENCE = 25_000; // ms after which a stream that says nothing is taken for broken: it says something each 15 s

export class Live {
  /** on: {scene(data), side(data), gone(text), failed(text), away({text, since}), refused(status, text), state()}; states: opening, live, broken, away. */
  constructor(on) {
    this.on = on;
    this.url = null;
    this.source = null;
    this.state = "opening";
    this.since = Date.now(); // since when it is in this state
    this.heard = null; // when it last brought anything, ms of Date.now()
    this.shown = null; // when it last brought what the screen shows: then that was so
    this.tries = 0;
    document.addEventListener("visibilitychange", () => document.hidden ? this.rest() : this.open());
    addEventListener("pagehide", () => this.rest());
    addEventListener("pageshow", (e) => { if (e.persisted) this.open(); });
    addEventListener("online", () => this.open());
    setInterval(() => { if (this.source && this.heard !== null && Date.now() - Math.max(this.heard, this.opened) > SILENCE) this.broke(); }, 5_000);
  }

  /** Looks at another address from now on. */
  watch(url) {
    if (url !== this.url) this.shown = null;
    this.url = url;
    this.tries = 0;
    this.open();
  }

  rest() {
    clearTimeout(this.later);
    this.source?.close();
    this.source = null;
  }

  open() {
    this.rest();
    if (!this.url || document.hidden) return;
    const source = this.source = new EventSource(this.url);
    this.opened = Date.now();
    const heard = (name, then) => source.addEventListener(name, (e) => {
      if (source !== this.source) return;
      this.heard = Date.now();
      this.tries = 0;
      then(e.data ? JSON.parse(e.data) : null);
    });
    heard("scene", (data) => { this.shown = this.heard; this.turn("live"); this.on.scene(data); });
    heard("beat", () => { this.shown = this.heard; });
    heard("here", () => {});
    heard("side", (data) => { this.on.side(data); });
    heard("gone", (data) => { this.shown = this.heard; this.turn("live"); this.on.gone(data.text); });
    heard("failed", (data) => { this.turn("live"); this.on.failed(data.text); });
    heard("away", (data) => { this.turn("away"); this.on.away(data); });
    source.onerror = () => { if (source === this.source) this.broke(); };
  }

  /** The stream ended, or was refused: tries again, by and by more seldom. The browser's own tries end with a refusal. */
  broke() {
    this.rest();
    if (this.tries) this.turn("broken");
    const pause = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** this.tries++) * (0.75 + Math.random() / 2);
    this.later = setTimeout(async () => {
      const { url } = this;
      if (this.tries > 1) await this.askWhy(url);
      if (url === this.url) this.open();
    }, pause);
  }

  /** A stream that is refused does not say why: its answer does. */
  async askWhy(url) {
    try {
      const answer = await fetch(url, { signal: AbortSignal.timeout(LONGEST_PAUSE) });
      if (answer.ok) return answer.body.cancel();
      const { text } = await answer.json().catch(() => ({}));
      if (url === this.url) this.on.refused(answer.status, text ?? "");
    } catch { /* still no connection */ }
  }

  turn(state) {
    if (state !== this.state) { this.since = Date.now(); this.state = state; this.on.state(); }
  }
}
