/** Where a request's time goes, the router's own part first, and what the router answered with an error. */

import { figure, h, keyed, setFigure, show } from '../dom.js';
import { count, seconds } from '../format.js';
import { PHASES } from '../words.js';

/** @param {HTMLElement} section */
export function createPhases(section) {
  const rows = Object.entries(PHASES).map(([phase, title]) => phaseRow(phase, title));
  const head = h('tr', {}, ...['Phase', 'p50', 'p95', 'Requests'].map((title, index) => h('th', { scope: 'col', class: index ? 'number' : null }, title)));
  const errors = h('ul', { class: 'plain' });
  const errorPart = h('div', { hidden: true }, h('h3', {}, 'Errors of the router’s own'), errors);
  section.append(
    h('div', { class: 'scroll' }, h('table', {}, h('thead', {}, head), h('tbody', {}, ...rows.map((each) => each.row)))),
    errorPart,
  );
  return {
    /** @param {import('../state.js').State} state */
    update({ overview, window }) {
      const all = overview.windows[window];
      for (const each of rows) each.set(all.phases[each.phase] ?? { count: 0, p50_s: null, p95_s: null });
      const codes = Object.entries(all.errors).filter(([, times]) => times > 0);
      keyed(errors, codes, ([code]) => code, errorRow, (row, [, times]) => setFigure(row.lastElementChild, times, count));
      show(errorPart, codes.length > 0);
    },
  };
}

/** @param {string} phase @param {string} title */
function phaseRow(phase, title) {
  const [p50, p95, requests] = [figure('p50_s'), figure('p95_s'), figure('count')];
  const cells = [p50, p95, requests].map((each) => h('td', { class: 'number' }, each));
  return {
    phase,
    row: h('tr', { 'data-phase': phase }, h('th', { scope: 'row' }, title), ...cells),
    /** @param {import('../types.js').Quantiles} quantiles */
    set(quantiles) {
      setFigure(p50, quantiles.p50_s, seconds);
      setFigure(p95, quantiles.p95_s, seconds);
      setFigure(requests, quantiles.count, count);
    },
  };
}

/** @param {[string, number]} entry */
const errorRow = ([code]) => h('li', {}, h('span', {}, code), figure('errors', 'number'));
