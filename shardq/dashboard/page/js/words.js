// How numbers and times are written: as shardq/model/wording.py writes them, word by word; a test holds that.
// Times are those of the browser's time zone, which the foot of the side names.
export const REASONS = ["worker", "turn", "limit", "pause", "delay", "retry"];
/** For what a message waits: a name, and what that means. As in shardq/outlook/reasons.py. */
export const MEANS = {
  worker: ["for a worker", "none reads this queue"],
  turn: ["for a turn", "others are served in between, each its share"],
  limit: ["for a limit", "its own limit, or its plan's, allows no more now"],
  pause: ["paused", "somebody paused it"],
  delay: ["not due yet", "written for later"],
  retry: ["to be tried again", "it failed, and waits for its next try"],
};

const NONE = "–";
/** Numbers with so many decimals; what is in the middle goes to the even one, as in Python. */
const DECIMALS = [0, 1, 2].map((count) => new Intl.NumberFormat("en-GB", { minimumFractionDigits: count, maximumFractionDigits: count, roundingMode: "halfEven" }));
const fixed = (x, decimals) => DECIMALS[decimals].format(x);
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const HALF_A_DAY = 43_200, DAY = 86_400, YEAR = 300 * DAY;
const isNone = (x) => x === null || x === undefined;

export const n = (x) => isNone(x) ? NONE : fixed(x, 0);
export const plural = (x, one, many = one + "s") => `${n(x)} ${Math.round(x) === 1 ? one : many}`;
export const rate = (x) => isNone(x) ? NONE : fixed(x, x >= 9.95 || x === 0 ? 0 : x >= 0.995 ? 1 : 2) + "/s";
export const pct = (x) => isNone(x) ? NONE : x > 0 && 100 * x < 0.05 ? "<0.1 %" : fixed(100 * x, x > 0 && 100 * x < 9.95 ? 1 : 0) + " %";

/** A length of time in one unit. JSON has no infinity: "never" is what a scene says in words. */
export function span(t) {
  if (isNone(t)) return NONE;
  if (!isFinite(t)) return "never";
  t = Math.max(0, t);
  if (t < 0.0995) return fixed(t * 1000, 0) + " ms";
  const [one, unit] = t < 119.5 ? [1, "s"] : t < 3570 ? [60, "min"] : t < 2 * DAY ? [3600, "h"] : [DAY, "d"];
  const value = t / one;
  return fixed(value, (unit === "s" || unit === "h") && value < 9.95 ? 1 : 0) + " " + unit;
}
/** How long ago something was, for a column. */
export const age = (t) => isNone(t) ? NONE : t >= 9.95 ? span(t) : fixed(Math.max(0, t), 0) + " s";

/** How large something is. */
export function size(octets) {
  if (isNone(octets)) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"], power = Math.max(0, units.findIndex((unit, i) => octets < 1000 * 1024 ** i || unit === "TB"));
  const x = octets / 1024 ** power;
  return fixed(x, x >= 9.95 || Math.abs(x - Math.round(x)) < 0.05 ? 0 : 1) + " " + units[power];
}

const two = (x) => String(x).padStart(2, "0");
export const clock = (t, seconds = false) => { const d = new Date(t * 1000); return two(d.getHours()) + ":" + two(d.getMinutes()) + (seconds ? ":" + two(d.getSeconds()) : ""); };
/** When something was or will be: a time, the day of this week with a time, or the date. */
export function when(t, now) {
  if (isNone(t)) return NONE;
  const d = new Date(t * 1000), apart = Math.abs(now - t);
  if (!isFinite(t) || isNaN(d)) return "never";
  if (apart < HALF_A_DAY) return clock(t);
  if (apart < 6 * DAY) return DAYS[d.getDay()] + " " + clock(t);
  const date = `${d.getDate()} ${MONTHS[d.getMonth()]}`;
  return apart < YEAR ? date : `${date} ${d.getFullYear()}`;
}
/** The time zone of all times on the page. */
export const zone = () => new Intl.DateTimeFormat("en-GB").resolvedOptions().timeZone || "local time";
export const last = (list) => list[list.length - 1];
export const sum = (list, f = (x) => x) => list.reduce((a, x) => a + f(x), 0);
