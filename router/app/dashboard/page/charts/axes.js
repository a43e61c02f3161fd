/** The frame around what is drawn: a line for each round value, and what it is. */

import { s } from '../dom.js';
import { minute } from '../format.js';
import { timeTicks } from './scale.js';

/**
 * @typedef {object} Plot  Where to draw, in pixels.
 * @property {SVGElement} svg
 * @property {number} width
 * @property {number} height
 * @property {number} left
 * @property {number} right
 * @property {number} top
 * @property {number} bottom
 */

const TICK_PX = 76; // what "12:30" and some air take

/** @param {SVGElement} svg @param {number} width @param {number} height @returns {Plot} */
export function plotIn(svg, width, height) {
  return { svg, width, height, left: 52, right: width - 10, top: 8, bottom: height - 22 };
}

/** @param {Plot} plot @param {import('./scale.js').Scale} scale @param {(value: number) => string} format */
export function valueAxis(plot, scale, format) {
  for (const tick of scale.ticks) {
    const y = Math.round(scale.at(tick)) + 0.5;
    plot.svg.append(
      s('line', { class: 'grid', x1: plot.left, x2: plot.right, y1: y, y2: y }),
      s('text', { class: 'tick', x: plot.left - 7, y: y + 3.5, 'text-anchor': 'end' }, shortly(format(tick))),
    );
  }
}

/** "10 s", not "10.0 s": round values need no more digits. @param {string} text */
const shortly = (text) => text.replace(/\.0+(?!\d)/, '');

/** @param {Plot} plot @param {number} start_s @param {number} end_s @returns {(at_s: number) => number} */
export function timeAxis(plot, start_s, end_s) {
  const at = (/** @type {number} */ at_s) =>
    plot.left + ((at_s - start_s) / (end_s - start_s)) * (plot.right - plot.left);
  for (const tick of timeTicks(start_s, end_s, Math.max(2, (plot.right - plot.left) / TICK_PX))) {
    const x = at(tick);
    plot.svg.append(s('line', { class: 'axis', x1: x, x2: x, y1: plot.bottom, y2: plot.bottom + 4 }));
    if (x > plot.left + 14 && x < plot.right - 14) {
      plot.svg.append(s('text', { class: 'tick', x, y: plot.bottom + 17, 'text-anchor': 'middle' }, minute(tick)));
    }
  }
  return at;
}

/** Say in the middle that there is nothing to draw. @param {Plot} plot @param {string} words */
export function sayNothing(plot, words) {
  const x = (plot.left + plot.right) / 2;
  plot.svg.append(s('text', { class: 'nothing', x, y: (plot.top + plot.bottom) / 2, 'text-anchor': 'middle' }, words));
}
