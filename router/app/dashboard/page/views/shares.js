/** How much came from cache for each model and each replica: bars, and all figures as a table. */

import { figure, h, keyed, meter, setFigure, setMeter, setText, show } from '../dom.js';
import { amount, count, knownRatio, percent, seconds } from '../format.js';
import { replicaLabel } from './names.js';

/** @type {[string, string, (value: number | null | undefined) => string][]} */
const COLUMNS = [
  ['hit_ratio', 'From cache', percent],
  ['predicted_ratio', 'Predicted', percent],
  ['prompt_tokens', 'Prompt tokens', amount],
  ['reported_prompt_tokens', 'Reported on', amount],
  ['engine_cached_tokens', 'Cached', amount],
  ['predicted_cached_tokens', 'Cached, predicted', amount],
  ['lost_tokens', 'Lost', amount],
  ['saved_prefill_s', 'Prefill saved', seconds],
  ['requests', 'Requests', count],
  ['failed', 'Failed', count],
];

/** @typedef {{key: string, kind: string, id: string, name: string, totals: import('../types.js').Totals}} Share */

/** @param {HTMLElement} section */
export function createShares(section) {
  const models = h('ul', { class: 'shares', tabindex: 0, 'aria-label': 'By model' });
  const replicas = h('ul', { class: 'shares', tabindex: 0, 'aria-label': 'By replica' });
  const modelPart = h('div', {}, h('h3', {}, 'Models'), models);
  const body = h('tbody', {});
  const head = h('tr', {}, h('th', { scope: 'col' }, ''), ...COLUMNS.map(([, title]) => numberHead(title)));
  const place = { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'All figures, as a table' };
  section.append(
    modelPart,
    h('h3', {}, 'Replicas'),
    replicas,
    h('p', { class: 'note' }, 'Bar and first figure: reported by the engine. Tick and second figure: predicted by the router.'),
    h(
      'details',
      { class: 'as-table' },
      h('summary', {}, 'All figures as a table'),
      h('div', place, h('table', {}, h('thead', {}, head), body)),
    ),
  );
  return {
    /** @param {import('../state.js').State} state */
    update(state) {
      const all = sharesOf(state);
      const kind = (/** @type {string} */ name) => all.filter((share) => share.kind === name);
      show(modelPart, kind('model').length > 0);
      keyed(models, kind('model'), keyOf, shareRow, fillShareRow);
      keyed(replicas, kind('replica'), keyOf, shareRow, fillShareRow);
      keyed(body, all, keyOf, figureRow, fillFigureRow);
    },
  };
}

/** @param {Share} share */
const keyOf = (share) => share.key;

/** @param {string} title */
const numberHead = (title) => h('th', { scope: 'col', class: 'number' }, title);

/** The fleet, then its models, then its replicas. @param {import('../state.js').State} state @returns {Share[]} */
function sharesOf({ overview, window }) {
  const share = (/** @type {string} */ kind, /** @type {string} */ id, /** @type {string} */ name, /** @type {any} */ totals) => ({
    key: `${kind} ${id}`, kind, id, name, totals,
  }); // prettier-ignore
  return [
    share('fleet', '', 'Fleet', overview.windows[window]),
    ...Object.entries(overview.models).map(([name, windows]) => share('model', name, name || 'no model named', windows[window])),
    ...overview.replicas.map((replica) => share('replica', replica.id, replicaLabel(replica), replica.windows[window])),
  ];
}

/** @param {Share} share */
function shareRow({ id, name }) {
  const bar = meter();
  const [reported, predicted] = [figure('hit_ratio', 'number'), figure('predicted_ratio', 'number quiet')];
  const nameText = h('span', { class: 'share-name', title: name }, name);
  return Object.assign(h('li', { 'data-id': id }, nameText, bar, reported, predicted), { bar, reported, predicted, nameText });
}

/** @param {ReturnType<typeof shareRow>} row @param {Share} share */
function fillShareRow(row, { name, totals }) {
  setText(row.nameText, name);
  setFigure(row.reported, knownRatio(totals), percent);
  setFigure(row.predicted, totals.predicted_ratio, percent);
  setMeter(row.bar, knownRatio(totals), totals.predicted_ratio);
}

/** @param {Share} share */
function figureRow({ kind, id, name }) {
  const figures = COLUMNS.map(([field]) => figure(field));
  const nameText = h('th', { scope: 'row' }, name);
  const row = h('tr', { 'data-kind': kind, 'data-id': id }, nameText, ...figures.map((each) => h('td', { class: 'number' }, each)));
  return Object.assign(row, { figures, nameText });
}

/** @param {ReturnType<typeof figureRow>} row @param {Share} share */
function fillFigureRow(row, { name, totals }) {
  setText(row.nameText, name);
  COLUMNS.forEach(([field, , format], index) => {
    setFigure(row.figures[index], /** @type {any} */ (totals)[field], format);
  });
}
