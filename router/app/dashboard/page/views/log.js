/** The decisions as they are made, newest first, with a filter. */

import { h, keyed, setAttribute, setText } from '../dom.js';
import { amount, clock, count, plural, seconds, text } from '../format.js';
import { CAUSES } from '../causes.js';
import { REASONS, causeTitle } from '../words.js';
import { causeBadge, clipped, reasonBadge, replicaLabel, sessionButton } from './names.js';

/** @typedef {import('../types.js').Decided} Decided */

const SHOWN = 150; // rows: more than anybody reads, few enough to draw at once

/** @type {[string, boolean, (row: Decided, state: import('../state.js').State) => Node | string][]} */
const COLUMNS = [
  ['Time', false, (row) => clock(row.at_s)],
  ['Reason', false, (row) => reasonBadge(row.decision.reason)],
  ['Session', false, (row) => sessionButton(row.turn?.session)],
  ['Turn', true, (row) => count(row.turn?.number)],
  ['Replica', false, (row, state) => state.nameOf(row.decision.replica)],
  ['Prompt', true, (row) => amount(row.usage.prompt_tokens ?? row.decision.prompt_tokens)],
  ['Matched', true, (row) => amount(row.decision.matched_tokens)],
  ['Cached', true, (row) => amount(row.usage.cached_tokens)],
  ['Lost', true, (row) => amount(row.turn?.lost_tokens)],
  ['Why', false, (row) => causeBadge(row.turn?.cause ?? null)],
  ['TTFT', true, (row) => seconds(row.ttft_s)],
  ['Total', true, (row) => seconds(row.total_s)],
  ['Status', true, (row) => String(row.status)],
  ['Model', false, (row) => clipped(text(row.model))],
  ['Request', false, (row) => clipped(row.request_id, 'id')],
];

/** @param {HTMLElement} section */
export function createLog(section) {
  const filter = createFilter();
  const body = h('tbody', { 'data-list': 'decisions' });
  const head = COLUMNS.map(([title, isNumber]) => h('th', { scope: 'col', class: isNumber ? 'number' : null }, title));
  const place = { class: 'scroll tall', tabindex: 0, role: 'region', 'aria-labelledby': 'decisions-title' };
  const told = h('p', { class: 'note', id: 'log-told' });
  section.append(
    filter.element,
    told,
    h('div', place, h('table', {}, h('thead', {}, h('tr', {}, ...head)), body)),
  );
  /** @type {Decided[]} */
  let frozen = [];
  let frozenAt = 0;
  /** @type {import('../state.js').State | null} */
  let last = null;
  const draw = () => {
    if (last === null) return;
    const rows = filter.paused ? frozen : last.decisions;
    const fitting = rows.filter((row) => filter.fits(row, last));
    keyed(body, fitting.slice(0, SHOWN), (row) => row.key, makeRow, (element, row) => fillRow(element, row, last));
    const waiting = filter.paused ? last.heard - frozenAt : 0;
    const missed = last.skipped ? `, ${count(last.skipped)} came too fast to be shown` : '';
    setText(told, `${count(fitting.length)} of the last ${plural(rows.length, 'decision')}${missed}${filter.paused ? `; paused, ${count(waiting)} new` : ''}`);
  };
  filter.changed = (pausing) => {
    if (pausing && last !== null) [frozen, frozenAt] = [last.decisions.slice(), last.heard];
    draw();
  };
  return {
    /** @param {import('../state.js').State} state */
    update(state) {
      last = state;
      filter.offer(state.overview?.replicas ?? []);
      draw();
    },
  };
}

/** @param {Decided & {key: string}} row */
const makeRow = (row) => h('tr', { 'data-request': row.request_id });

/** A decision does not change any more, except for how its replica is called. @param {HTMLElement} element
 * @param {Decided} row @param {any} state */
function fillRow(element, row, state) {
  const version = state.nameOf(row.decision.replica);
  if (element.dataset.version === version) return;
  element.dataset.version = version;
  element.replaceChildren(
    ...COLUMNS.map(([, isNumber, read]) => h('td', { class: isNumber ? 'number' : null }, read(row, state))),
  );
}

function createFilter() {
  const words = h('input', { type: 'search', placeholder: 'id, model, path …', 'aria-label': 'Text to look for', spellcheck: 'false' });
  const reason = choice('Reason', Object.keys(REASONS).map((each) => [each, each]));
  const causes = Object.keys(CAUSES).map((each) => /** @type {[string, string]} */ ([each, causeTitle(each)]));
  const cause = choice('Why lost', [['any', 'any loss'], ...causes]);
  const replica = choice('Replica', []);
  const pause = h('button', { type: 'button', 'aria-pressed': 'false' }, 'Pause');
  const form = h('form', { class: 'filter', role: 'search', 'aria-label': 'Filter the decisions' }, words, reason.select, cause.select, replica.select, pause);
  const filter = {
    element: form,
    paused: false,
    /** @param {boolean} [pausing] */
    changed: (pausing) => {},
    /** @param {Decided} row @param {any} state */
    fits: (row, state) =>
      (!reason.value() || row.decision.reason === reason.value()) &&
      (!replica.value() || row.decision.replica === replica.value()) &&
      (!cause.value() || fitsCause(row, cause.value())) &&
      fitsWords(row, words.value, state),
    /** @param {import('../types.js').Replica[]} replicas */
    offer: (replicas) => replica.offer(replicas.map((each) => [each.id, replicaLabel(each)])),
  };
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('input', () => filter.changed());
  pause.addEventListener('click', () => {
    filter.paused = !filter.paused;
    setAttribute(pause, 'aria-pressed', String(filter.paused));
    filter.changed(filter.paused);
  });
  return filter;
}

/** @param {string} title @param {[string, string][]} options */
function choice(title, options) {
  const select = h('select', { 'aria-label': title });
  const offer = (/** @type {[string, string][]} */ offered) => {
    const all = [/** @type {[string, string]} */ (['', `${title}: all`]), ...offered];
    keyed(select, all, ([value]) => value, ([value]) => h('option', { value }), (option, [, words]) => setText(option, words));
  };
  offer(options);
  return { select, value: () => select.value, offer };
}

/** @param {Decided} row @param {string} cause */
function fitsCause({ turn }, cause) {
  return cause === 'any' ? (turn?.lost_tokens ?? 0) > 0 : turn?.cause === cause;
}

/** Whether each word is somewhere in it. @param {Decided} row @param {string} words @param {any} state */
function fitsWords(row, words, state) {
  const asked = words.toLowerCase().split(/\s+/).filter(Boolean);
  if (!asked.length) return true;
  const { decision, turn } = row;
  const said = [row.request_id, row.model, row.path, row.status, decision.reason, decision.replica, state.nameOf(decision.replica), turn?.session, turn?.cause];
  const whole = said.join(' ').toLowerCase();
  return asked.every((word) => whole.includes(word));
}

