/** After how long sessions come back, in time or too late, and how long what is evicted was unused. */

import { HATCHED, s } from '../dom.js';
import { count, plural, seconds } from '../format.js';
import { sayNothing, valueAxis } from './axes.js';
import { linear } from './scale.js';

const LABEL_PX = 46; // what "1.4 h" and some air take

/**
 * @typedef {{replica: string, age_s: number}} Age
 * @typedef {{returns: import('../types.js').Returns, ages: Age[], evicted: boolean}} ReturnData  Whether anything is
 *   known to have been evicted in the window.
 */

/** @param {number[]} values */
const sum = (values) => values.reduce((total, value) => total + value, 0);

/** @param {ReturnData} data @param {number} index */
export function binName({ returns: { bounds_s } }, index) {
  if (index === 0) return `up to ${seconds(bounds_s[0])}`;
  if (index === bounds_s.length) return `above ${seconds(bounds_s[index - 1])}`;
  return `${seconds(bounds_s[index - 1])} to ${seconds(bounds_s[index])}`;
}

/** Where a time is among the bins, which each are a doubling: 0 is the first one's beginning.
 * @param {number[]} bounds_s @param {number} age_s */
function positionOf(bounds_s, age_s) {
  const bin = bounds_s.findIndex((bound) => age_s <= bound);
  if (bin === 0) return age_s / bounds_s[0];
  if (bin < 0) return bounds_s.length + 0.5;
  return bin + Math.log(age_s / bounds_s[bin - 1]) / Math.log(bounds_s[bin] / bounds_s[bin - 1]);
}

/** @param {import('./axes.js').Plot} whole @param {ReturnData} data */
export function drawReturns(whole, data) {
  const plot = { ...whole, top: whole.top + (data.ages.length ? 12 : 0) };
  const { bounds_s, in_time, too_late } = data.returns;
  const largest = Math.max(0, ...in_time.map((value, index) => value + too_late[index]));
  const scale = linear(largest, plot.bottom, plot.top);
  valueAxis(plot, scale, (value) => (Number.isInteger(value) ? count(value) : ''));
  if (!largest) sayNothing(plot, 'No session came back in this window');
  const width = (plot.right - plot.left) / in_time.length;
  const placeOf = (/** @type {number} */ index) => plot.left + (index + 0.5) * width;
  in_time.forEach((value, index) => {
    const x = plot.left + index * width;
    column(plot.svg, { class: 'area' }, 'ink-warm', x, width, scale, 0, value);
    column(plot.svg, HATCHED, 'ink-lost', x, width, scale, value, value + too_late[index]);
  });
  drawBounds(plot, bounds_s, width);
  for (const age of data.ages) drawAge(plot, plot.left + positionOf(bounds_s, age.age_s) * width);
  const indexAt = (/** @type {number} */ x) =>
    Math.max(0, Math.min(in_time.length - 1, Math.floor((x - plot.left) / width)));
  return { placeOf, indexAt };
}

/** @param {import('./axes.js').Plot} plot @param {number[]} bounds_s @param {number} width */
function drawBounds(plot, bounds_s, width) {
  const every = Math.max(1, Math.ceil(LABEL_PX / width));
  for (let index = 0; index < bounds_s.length; index += every) {
    const x = plot.left + (index + 1) * width;
    plot.svg.append(
      s('line', { class: 'axis', x1: x, x2: x, y1: plot.bottom, y2: plot.bottom + 4 }),
      s('text', { class: 'tick', x, y: plot.bottom + 17, 'text-anchor': 'middle' }, shortly(bounds_s[index])),
    );
  }
}

/** "5.3 min", not "5 min 20 s": there is little room below the columns. @param {number} bound_s */
function shortly(bound_s) {
  if (bound_s < 100) return `${bound_s}\u202fs`;
  const minutes = bound_s / 60;
  if (minutes < 60) return `${minutes.toFixed(minutes < 10 ? 1 : 0)}\u202fmin`;
  return `${(minutes / 60).toFixed(1)}\u202fh`;
}

/** @param {import('./axes.js').Plot} plot @param {number} x */
function drawAge(plot, x) {
  plot.svg.append(
    s('line', { class: 'age', x1: x, x2: x, y1: plot.top - 6, y2: plot.bottom }),
    s('path', { class: 'age-mark', d: `M${x - 5} ${plot.top - 13}h10l-5 8z` }),
  );
}

/** @param {SVGElement} svg @param {Record<string, string>} look @param {string} ink @param {number} x
 * @param {number} width @param {import('./scale.js').Scale} scale @param {number} from @param {number} to */
function column(svg, look, ink, x, width, scale, from, to) {
  if (to <= from) return;
  const [top, bottom] = [scale.at(to), scale.at(from)];
  const box = { x: x + 1, y: top, width: Math.max(1, width - 2), height: bottom - top };
  svg.append(s('g', { class: ink }, s('rect', { ...look, ...box })));
}

/** @param {ReturnData} data @param {number | null} index @returns {import('./chart.js').LegendItem[]} */
export function returnLegend(data, index) {
  const value = (/** @type {number[]} */ values) => count(index === null ? sum(values) : values[index]);
  return [
    { key: 'in time', label: 'still there', ink: 'ink-warm', mark: 'box', value: value(data.returns.in_time) },
    { key: 'too late', label: 'evicted before', ink: 'ink-lost', mark: 'hatched', value: value(data.returns.too_late) },
  ];
}

/** The whole in one sentence. @param {ReturnData} data */
export function returnSentence({ returns }) {
  const [in_time, too_late] = [sum(returns.in_time), sum(returns.too_late)];
  const all = in_time + too_late;
  if (!all) return 'No session came back in this window.';
  return `${count(too_late)} of ${plural(all, 'return')} came too late.`;
}

/** @param {ReturnData} data */
export function ageSentence({ ages, evicted }) {
  if (!ages.length) return evicted ? 'No replica has to evict anything now.' : 'No replica has to evict anything yet.';
  const each = ages.map((age) => `${age.replica} after ${seconds(age.age_s)}`);
  return `Unused blocks are evicted: ${each.join(', ')}.`;
}

/** @param {ReturnData} data */
export const describeReturns = (data) => `${returnSentence(data)} ${ageSentence(data)}`;

/** @param {ReturnData} data @returns {import('../table.js').TablePlan} */
export const returnTable = (data) => ({
  head: ['Came back after', 'Still there', 'Evicted before'],
  rows: data.returns.in_time.map((value, index) => [
    binName(data, index),
    count(value),
    count(data.returns.too_late[index]),
  ]),
});
