/** Numbers as people read them: three digits, a unit that fits, and a dash for what is not known. */

export const UNKNOWN = '–';
const GAP = '\u202f'; // a narrow space that no line breaks at

/** @param {number | null | undefined} value */
export const isKnown = (value) => value !== null && value !== undefined && Number.isFinite(value);

/** @param {number} value Below 1,000; at or above only for the largest unit. */
function threeDigits(value) {
  if (value < 9.995) return value.toFixed(2);
  return value < 99.95 ? value.toFixed(1) : value.toFixed(0);
}

/** A number of things, in full: 12,345.
 * @param {number | null | undefined} value */
export function count(value) {
  if (!isKnown(value)) return UNKNOWN;
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ',');
}

/** A large number in three digits: 12.3 k.
 * @param {number | null | undefined} value */
export function amount(value) {
  if (!isKnown(value)) return UNKNOWN;
  if (value < 999.5) return String(Math.round(value));
  for (const [unit, size] of [['k', 1e3], ['M', 1e6], ['G', 1e9]]) {
    if (value / size < 999.5 || unit === 'G') return threeDigits(value / size) + GAP + unit;
  }
  return UNKNOWN;
}

/** @param {number | null | undefined} value Seconds. */
export function seconds(value) {
  if (!isKnown(value)) return UNKNOWN;
  if (value <= 0) return `0${GAP}s`;
  if (value < 0.9995e-3) return `${threeDigits(value * 1e6)}${GAP}µs`;
  if (value < 0.9995) return `${threeDigits(value * 1e3)}${GAP}ms`;
  if (value < 99.95) return `${threeDigits(value)}${GAP}s`;
  if (value < 3599.5) return pair(value, 60, 'min', 1, 's');
  if (value < 86_370) return pair(value, 3600, 'h', 60, 'min');
  return pair(value, 86_400, 'd', 3600, 'h');
}

/** Beside an axis: "100 s", not "1 min 40 s". @param {number} value */
export const axisSeconds = (value) => (value < 60 ? seconds(value) : `${value}${GAP}s`);

/** @param {number} value @param {number} large @param {string} unit @param {number} small @param {string} rest */
function pair(value, large, unit, small, rest) {
  const all = Math.round(value / small);
  const each = large / small;
  const left = all % each;
  return `${Math.floor(all / each)}${GAP}${unit}` + (left ? ` ${left}${GAP}${rest}` : '');
}

/** @param {number | null | undefined} value 0 to 1. */
export function percent(value) {
  if (!isKnown(value)) return UNKNOWN;
  const text = (value * 100).toFixed(1);
  return `${text === '100.0' ? '100' : text}${GAP}%`;
}

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (!isKnown(value)) return UNKNOWN;
  if (value < 999.5) return `${Math.round(value)}${GAP}B`;
  return `${amount(value)}B`;
}

/** A rate, in three digits: 8,120 is shown as 8.12 k/s.
 * @param {number | null | undefined} value */
export const perSecond = (value) => (isKnown(value) ? `${amount(value)}/s` : UNKNOWN);

const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const MINUTE = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });

/** @param {number | null | undefined} value Unix time in seconds. */
export const clock = (value) => (isKnown(value) ? CLOCK.format(value * 1000) : UNKNOWN);

/** @param {number} value Unix time in seconds. */
export const minute = (value) => MINUTE.format(value * 1000);

/** What follows a number: turn, turns.
 * @param {number} number @param {string} one @param {string} [many] */
export const unit = (number, one, many = `${one}s`) => (number === 1 ? one : many);

/** One turn, two turns.
 * @param {number} number @param {string} one @param {string} [many] */
export const plural = (number, one, many) => `${count(number)} ${unit(number, one, many)}`;

/** What is not text is not known.
 * @param {unknown} value */
export const text = (value) => (value === null || value === undefined || value === '' ? UNKNOWN : String(value));

/**
 * The share of prompt tokens that was cached: as answers say, or where none does, as the engines' own counters do.
 *
 * @param {import('./types.js').Totals} totals
 */
export const knownRatio = ({ hit_ratio, counter_ratio }) => hit_ratio ?? counter_ratio;
