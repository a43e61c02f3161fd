/** Plain tables, made anew from their cells. */

import { h } from './dom.js';

/** @typedef {{head: string[], rows: string[][]}} TablePlan  The first cell of a row is its heading. */

/** @param {TablePlan} plan */
export function table({ head, rows }) {
  return h(
    'table',
    {},
    h('thead', {}, h('tr', {}, ...head.map((text, index) => h('th', { scope: 'col', class: index ? 'number' : null }, text)))),
    h('tbody', {}, ...rows.map(row)),
  );
}

/** @param {string[]} cells */
function row(cells) {
  const [first, ...rest] = cells;
  return h('tr', {}, h('th', { scope: 'row' }, first), ...rest.map((text) => h('td', { class: 'number' }, text)));
}
