/** Columns over time, each made of parts. */

import { s } from '../dom.js';
import { clock, seconds } from '../format.js';
import { sayNothing, timeAxis, valueAxis } from './axes.js';
import { indexAt } from './lines.js';
import { linear } from './scale.js';

/**
 * @typedef {{key: string, label: string, ink: string, values: (number | null)[]}} Part
 * @typedef {{start_s: number, step_s: number, steps: number, now_s: number, parts: Part[]}} StackData  `now_s`: a step that
 *   ends later is not over yet.
 * @typedef {{format: (value: number) => string, nothing: string}} StackStyle
 */

/** @param {StackData} data @param {number} index */
const totalAt = (data, index) => data.parts.reduce((sum, part) => sum + (part.values[index] ?? 0), 0);

/** @param {(number | null)[]} values */
const sumOf = (values) => values.reduce((sum, value) => (sum ?? 0) + (value ?? 0), 0) ?? 0;

/** @param {StackStyle} style @returns {(plot: import('./axes.js').Plot, data: StackData) => any} */
export const drawStacks = (style) => (plot, data) => {
  const largest = Math.max(0, ...Array.from({ length: data.steps }, (_, index) => totalAt(data, index)));
  const scale = linear(largest, plot.bottom, plot.top);
  valueAxis(plot, scale, style.format);
  const place = timeAxis(plot, data.start_s, data.start_s + data.steps * data.step_s);
  if (!largest) sayNothing(plot, style.nothing);
  const width = (plot.right - plot.left) / data.steps;
  const gap = width > 4 ? 1 : 0;
  const bottoms = new Array(data.steps).fill(0);
  for (const part of data.parts) {
    const group = s('g', { class: part.ink });
    for (let index = 0; index < data.steps; index += 1) {
      const value = part.values[index] ?? 0;
      if (value <= 0) continue;
      const top = scale.at(bottoms[index] + value);
      const height = scale.at(bottoms[index]) - top;
      const air = height > 3 ? 0.6 : 0; // between parts, so that neighbours never merge
      const x = place(data.start_s + index * data.step_s);
      const over = data.start_s + (index + 1) * data.step_s <= data.now_s;
      group.append(
        s('rect', { class: over ? 'area' : 'area unfinished', x: x.toFixed(2), y: top.toFixed(2), width: (width - gap).toFixed(2),
          height: Math.max(0.4, height - air).toFixed(2) }),
      ); // prettier-ignore
      bottoms[index] += value;
    }
    plot.svg.append(group);
  }
  return {
    placeOf: (/** @type {number} */ index) => place(data.start_s + (index + 0.5) * data.step_s),
    indexAt: indexAt(plot, data.steps),
  };
};

/** @param {StackStyle} style @returns {(data: StackData, index: number | null) => import('./chart.js').LegendItem[]} */
export const stackLegend = (style) => (data, index) =>
  data.parts.map((part) => ({
    key: part.key,
    label: part.label,
    ink: part.ink,
    mark: 'box',
    value: style.format(index === null ? sumOf(part.values) : (part.values[index] ?? 0)),
  }));

/** @param {StackStyle} style @returns {(data: StackData) => string} */
export const describeStacks = (style) => (data) =>
  data.parts.length
    ? data.parts.map((part) => `${part.label} ${style.format(sumOf(part.values))}`).join(', ')
    : style.nothing;

/** @param {StackData} data @param {number} index */
export const stepName = (data, index) =>
  `${clock(data.start_s + index * data.step_s)}, ${seconds(data.step_s)}`;

/** @param {StackStyle} style @returns {(data: StackData) => import('../table.js').TablePlan} */
export const stackTable = (style) => (data) => ({
  head: ['From', ...data.parts.map((part) => part.label)],
  rows: Array.from({ length: data.steps }, (_, index) => [
    clock(data.start_s + index * data.step_s),
    ...data.parts.map((part) => style.format(part.values[index] ?? 0)),
  ]).reverse(),
});
