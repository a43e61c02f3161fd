/** From values to pixels, and the round numbers that are written beside them. */

/** @typedef {{at: (value: number) => number, ticks: number[]}} Scale */

const DAY_S = 86_400;
const TIME_STEPS_S = [10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, DAY_S];

/** From 0 to a little above the largest value. @param {number} largest @param {number} from_px @param {number} to_px
 * @param {number} [most] How many steps at most. @returns {Scale} */
export function linear(largest, from_px, to_px, most = 4) {
  const top = largest > 0 ? largest : 1;
  const step = roundUp(top / most);
  const end = Math.ceil(top / step - 1e-9) * step;
  const ticks = Array.from({ length: Math.round(end / step) + 1 }, (_, index) => index * step);
  return { at: (value) => from_px + (value / end) * (to_px - from_px), ticks };
}

/** @param {number} value The next 1, 2 or 5 times a power of ten. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  const factor = [1, 2, 5, 10].find((each) => each * power >= value * (1 - 1e-9)) ?? 10;
  return factor * power;
}

/** Whole powers of ten around the values, each as tall as the next. @param {number[]} values Above 0.
 * @param {number} from_px @param {number} to_px @returns {Scale} */
export function logarithmic(values, from_px, to_px) {
  const above = values.filter((value) => value > 0);
  let low = Math.floor(Math.log10(Math.min(...above, 1)) + 1e-9);
  let high = Math.ceil(Math.log10(Math.max(...above, 1e-12)) - 1e-9);
  if (above.length) low = Math.floor(Math.log10(Math.min(...above)) + 1e-9);
  else [low, high] = [-2, 1];
  if (high <= low) high = low + 1;
  const ticks = Array.from({ length: high - low + 1 }, (_, index) => 10 ** (low + index));
  const at = (/** @type {number} */ value) =>
    from_px + ((Math.log10(Math.max(value, 10 ** low)) - low) / (high - low)) * (to_px - from_px);
  return { at, ticks };
}

/** Round local times in a span. @param {number} start_s @param {number} end_s @param {number} most */
export function timeTicks(start_s, end_s, most) {
  const step = TIME_STEPS_S.find((each) => (end_s - start_s) / each <= most) ?? DAY_S;
  const shift = new Date(end_s * 1000).getTimezoneOffset() * 60;
  const ticks = [];
  for (let tick = Math.ceil((start_s - shift) / step) * step + shift; tick <= end_s; tick += step) ticks.push(tick);
  return ticks;
}
