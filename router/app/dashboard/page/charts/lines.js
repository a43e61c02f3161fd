/** Lines over time, with gaps where nothing is known. */

import { s } from '../dom.js';
import { clock } from '../format.js';
import { sayNothing, timeAxis, valueAxis } from './axes.js';
import { linear, logarithmic } from './scale.js';

/**
 * @typedef {object} Line
 * @property {string} key
 * @property {string} label
 * @property {string} ink
 * @property {boolean} [dashed]
 * @property {(number | null)[]} values
 *
 * @typedef {{start_s: number, step_s: number, lines: Line[]}} LineData
 *
 * @typedef {{log?: boolean, largest?: number, format: (value: number | null) => string, nothing: string,
 *   axis?: (value: number) => string}} LineStyle
 */

/** @param {LineData} data */
const stepCount = (data) => data.lines[0]?.values.length ?? 0;

/** The middle of a step. @param {LineData} data @param {number} index */
const timeOf = (data, index) => data.start_s + (index + 0.5) * data.step_s;

/** @param {LineStyle} style @returns {(plot: import('./axes.js').Plot, data: LineData) => any} */
export const drawLines = (style) => (plot, data) => {
  const known = data.lines.flatMap((line) => line.values.filter((value) => value !== null));
  const scale = style.log
    ? logarithmic(known, plot.bottom, plot.top)
    : linear(style.largest ?? Math.max(0, ...known), plot.bottom, plot.top);
  valueAxis(plot, scale, style.axis ?? style.format);
  const steps = stepCount(data);
  const place = timeAxis(plot, data.start_s, data.start_s + steps * data.step_s);
  const placeOf = (/** @type {number} */ index) => place(timeOf(data, index));
  if (!known.length) sayNothing(plot, style.nothing);
  for (const line of data.lines) drawLine(plot.svg, line, placeOf, scale.at);
  return { placeOf, indexAt: indexAt(plot, steps) };
};

/** @param {import('./axes.js').Plot} plot @param {number} steps */
export const indexAt = (plot, steps) => (/** @type {number} */ x) => {
  const share = (x - plot.left) / (plot.right - plot.left);
  return Math.max(0, Math.min(steps - 1, Math.floor(share * steps)));
};

/** @param {SVGElement} svg @param {Line} line @param {(index: number) => number} x @param {(value: number) => number} y */
function drawLine(svg, line, x, y) {
  const group = s('g', { class: line.ink });
  let path = '';
  line.values.forEach((value, index) => {
    if (value === null) return;
    const begins = (line.values[index - 1] ?? null) === null;
    path += `${begins ? 'M' : 'L'}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
    if (begins && (line.values[index + 1] ?? null) === null) {
      group.append(s('circle', { class: 'area', cx: x(index).toFixed(1), cy: y(value).toFixed(1), r: 2 }));
    }
  });
  if (path) group.append(s('path', { class: line.dashed ? 'stroke dashed' : 'stroke', d: path }));
  svg.append(group);
}

/** @param {LineStyle} style @returns {(data: LineData, index: number | null) => import('./chart.js').LegendItem[]} */
export const lineLegend = (style) => (data, index) =>
  data.lines.map((line) => ({
    key: line.key,
    label: line.label,
    ink: line.ink,
    mark: line.dashed ? 'dashed' : 'line',
    value: index === null ? '' : style.format(line.values[index]),
  }));

/** @param {LineStyle} style @returns {(data: LineData) => string} */
export const describeLines = (style) => (data) =>
  data.lines.map((line) => `${line.label}: ${describeLine(line, style)}`).join('; ');

/** @param {Line} line @param {LineStyle} style */
function describeLine(line, style) {
  const known = line.values.filter((value) => value !== null);
  if (!known.length) return 'not known';
  const [low, high] = [Math.min(...known), Math.max(...known)];
  return `${style.format(low)} to ${style.format(high)}, last ${style.format(known[known.length - 1])}`;
}

/** @param {LineStyle} style @returns {(data: LineData) => import('../table.js').TablePlan} */
export const lineTable = (style) => (data) => ({
  head: ['Time', ...data.lines.map((line) => line.label)],
  rows: Array.from({ length: stepCount(data) }, (_, index) => [
    clock(data.start_s + index * data.step_s),
    ...data.lines.map((line) => style.format(line.values[index])),
  ]).reverse(),
});
