/** Warm against cold for each range of prompt lengths: from the median up to the 95th percentile. */

import { s } from '../dom.js';
import { axisSeconds, count, seconds } from '../format.js';
import { sayNothing, valueAxis } from './axes.js';
import { logarithmic } from './scale.js';

/** @typedef {import('../types.js').LengthRow[]} Rows */

const KINDS = /** @type {const} */ (['warm', 'cold']);
const INKS = { warm: 'ink-warm', cold: 'ink-cold' };

/** @param {Rows} rows @param {number} index */
function rangeName(rows, index) {
  const end = rows[index].up_to_tokens;
  if (end !== null) return `≤ ${powerName(end)}`;
  return index ? `> ${powerName(rows[index - 1].up_to_tokens ?? 0)}` : 'all';
}

/** Bounds are powers of two. @param {number} tokens */
const powerName = (tokens) => (tokens >= 1024 ? `${tokens / 1024}\u202fk` : String(tokens));

/** @param {import('./axes.js').Plot} plot @param {Rows} rows */
export function drawLengths(plot, rows) {
  const known = rows.flatMap((row) => KINDS.flatMap((kind) => [row[kind].p50_s, row[kind].p95_s]));
  const values = /** @type {number[]} */ (known.filter((value) => value !== null));
  const scale = logarithmic(values, plot.bottom, plot.top);
  valueAxis(plot, scale, axisSeconds);
  if (!values.length) sayNothing(plot, 'No streamed answers in this window');
  const width = (plot.right - plot.left) / Math.max(1, rows.length);
  const placeOf = (/** @type {number} */ index) => plot.left + (index + 0.5) * width;
  rows.forEach((row, index) => {
    const x = placeOf(index);
    plot.svg.append(s('text', { class: 'tick', x, y: plot.bottom + 17, 'text-anchor': 'middle' }, rangeName(rows, index)));
    KINDS.forEach((kind, side) => drawRange(plot.svg, kind, row[kind], x + (side - 0.5) * Math.min(22, width / 3), scale));
  });
  const indexAt = (/** @type {number} */ x) =>
    Math.max(0, Math.min(rows.length - 1, Math.floor((x - plot.left) / width)));
  return { placeOf, indexAt };
}

/** @param {SVGElement} svg @param {'warm' | 'cold'} kind @param {import('../types.js').Quantiles} quantiles
 * @param {number} x @param {import('./scale.js').Scale} scale */
function drawRange(svg, kind, quantiles, x, scale) {
  if (quantiles.p50_s === null || quantiles.p95_s === null) return;
  const [low, high] = [scale.at(quantiles.p50_s), scale.at(quantiles.p95_s)];
  const shape =
    kind === 'warm'
      ? s('circle', { class: 'area', cx: x, cy: low, r: 4.5 })
      : s('path', { class: 'area', d: `M${x} ${low - 5.5}l5.5 5.5-5.5 5.5-5.5-5.5z` });
  svg.append(
    s('g', { class: INKS[kind] },
      s('line', { class: 'stroke', x1: x, x2: x, y1: low, y2: high }),
      s('line', { class: 'stroke', x1: x - 4, x2: x + 4, y1: high, y2: high }),
      shape),
  ); // prettier-ignore
}

/** @param {import('../types.js').Quantiles} quantiles */
const range = (quantiles) => (quantiles.count ? `${seconds(quantiles.p50_s)} to ${seconds(quantiles.p95_s)}` : '–');

/** @param {Rows} rows @param {number | null} index @returns {import('./chart.js').LegendItem[]} */
export function lengthLegend(rows, index) {
  const value = (/** @type {'warm' | 'cold'} */ kind) => (index === null ? '' : range(rows[index][kind]));
  return [
    { key: 'warm', label: 'warm', ink: INKS.warm, mark: 'dot', value: value('warm') },
    { key: 'cold', label: 'cold', ink: INKS.cold, mark: 'diamond', value: value('cold') },
  ];
}

/** @param {Rows} rows @param {number} index */
export const lengthName = (rows, index) => `${rangeName(rows, index)} tokens`;

/** @param {Rows} rows */
export function describeLengths(rows) {
  const known = rows.map((row, index) => ({ row, index })).filter(({ row }) => row.warm.count + row.cold.count > 0);
  if (!known.length) return 'No streamed answers in this window';
  return known
    .map(({ row, index }) => `${lengthName(rows, index)}: warm ${range(row.warm)}, cold ${range(row.cold)}`)
    .join('; ');
}

/** @param {Rows} rows @returns {import('../table.js').TablePlan} */
export const lengthTable = (rows) => ({
  head: ['Prompt tokens', 'Warm', 'p50', 'p95', 'Cold', 'p50', 'p95'],
  rows: rows.map((row, index) => [
    rangeName(rows, index),
    ...KINDS.flatMap((kind) => [count(row[kind].count), seconds(row[kind].p50_s), seconds(row[kind].p95_s)]),
  ]),
});

