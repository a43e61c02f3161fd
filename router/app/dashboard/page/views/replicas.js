/** The replicas: whether they work, how busy they are, and how well their caches are known. */

import { figure, h, keyed, meter, setAttribute, setFigure, setMeter, setText } from '../dom.js';
import { amount, count, knownRatio, percent, perSecond, seconds, text } from '../format.js';
import { replicaLabel, stateBadge } from './names.js';

/** @typedef {import('../types.js').Replica} Replica */

/** @type {[string, string, (replica: Replica, window: import('../types.js').WindowName) => any, (value: any) => string, boolean?][]} */
const COLUMNS = [
  ['hit_ratio', 'From cache', (replica, window) => knownRatio(replica.windows[window]), percent, true],
  ['pressure_ratio', 'Pressure', (replica) => replica.pressure_ratio, percent, true],
  ['ledger.uncached_tokens', 'Tokens to prefill', (replica) => replica.ledger.uncached_tokens, amount],
  ['ledger.streams', 'In flight', (replica) => replica.ledger.streams, count],
  ['engine.running', 'Engine runs', (replica) => replica.engine.running, count],
  ['engine.waiting', 'Engine queue', (replica) => replica.engine.waiting, count],
  ['mirror.fill_ratio', 'Mirror full', (replica) => replica.mirror.fill_ratio, percent, true],
  ['mirror.accuracy', 'Mirror right', (replica) => accuracy(replica.mirror.error_ratio), percent],
  ['eviction_age_s', 'Evicts after', (replica) => replica.eviction_age_s, seconds],
  ['prefill_tokens_per_s', 'Prefill', (replica) => replica.prefill_tokens_per_s, perSecond],
];

/** @param {number | null} error_ratio May be above 1. */
const accuracy = (error_ratio) => (error_ratio === null ? null : Math.max(0, 1 - error_ratio));

/** @param {HTMLElement} section */
export function createReplicas(section) {
  const body = h('tbody', { 'data-list': 'replicas' });
  const heads = COLUMNS.map(([, title]) => h('th', { scope: 'col', class: 'number' }, title));
  const head = h('tr', {}, h('th', { scope: 'col' }, 'Replica'), h('th', { scope: 'col' }, 'State'), ...heads);
  const place = { class: 'scroll', tabindex: 0, role: 'region', 'aria-labelledby': 'replicas-title' };
  const none = h('p', { class: 'note' }, 'No replica is known.');
  section.append(
    none,
    h('div', place, h('table', { class: 'replicas' }, h('thead', {}, head), body)),
    h(
      'p',
      { class: 'note' },
      'Mirror: what the router believes a replica’s cache to hold. Right: 1 minus its error against the engine’s reports of the last hour. ',
      'Evicts after: how long what is evicted now was unused; “–” while nothing need be evicted.',
    ),
  );
  return {
    /** @param {import('../state.js').State} state */
    update({ overview, window }) {
      none.hidden = overview.replicas.length > 0;
      keyed(body, overview.replicas, (replica) => replica.id, replicaRow, (row, replica) => row.set(replica, window));
    },
  };
}

/** @param {Replica} replica */
function replicaRow({ id }) {
  const name = h('span', { class: 'replica-name' });
  const state = h('td', {});
  const cells = COLUMNS.map(([field, , , , hasBar]) => ({ value: figure(field), bar: hasBar ? meter() : null }));
  const row = h(
    'tr',
    { 'data-id': id },
    h('th', { scope: 'row' }, name, h('span', { class: 'id' }, id)),
    state,
    ...cells.map(({ value, bar }) => h('td', { class: 'number' }, value, bar)),
  );
  return Object.assign(row, {
    /** @param {Replica} replica @param {import('../types.js').WindowName} window */
    set(replica, window) {
      setText(name, replicaLabel(replica));
      setAttribute(name, 'title', replica.url);
      setState(state, replica);
      COLUMNS.forEach(([, , read, format], index) => {
        const value = read(replica, window) ?? null;
        setFigure(cells[index].value, value, format);
        if (cells[index].bar) setMeter(cells[index].bar, value);
      });
    },
  });
}

/** @param {HTMLElement} cell @param {Replica} replica */
function setState(cell, replica) {
  const word = replica.asleep ? `${replica.state}, asleep` : replica.state;
  const said = `${word} ${replica.cause ?? ''}`;
  if (cell.dataset.said === said) return;
  cell.dataset.said = said;
  const cause = replica.cause && replica.state !== 'ready' ? h('span', { class: 'id' }, text(replica.cause)) : null;
  cell.replaceChildren(...[stateBadge(replica.state), replica.asleep ? h('span', { class: 'id' }, 'asleep') : null, cause].filter((each) => each !== null));
}
