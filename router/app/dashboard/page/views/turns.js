/** The turns that missed and the sessions, as tables. */

import { h, keyed, setText, show } from '../dom.js';
import { amount, clock, count, seconds, text } from '../format.js';
import { placeOfChange } from '../words.js';
import { causeBadge, clipped, reasonBadge, sessionButton } from './names.js';

/**
 * @template T
 * @param {HTMLElement} section @param {string} nothing @param {[string, boolean, (item: T, state: any) => Node | string][]} columns
 */
function listTable(section, nothing, columns) {
  const body = h('tbody', { 'data-list': section.id });
  const heads = columns.map(([title, isNumber]) => h('th', { scope: 'col', class: isNumber ? 'number' : null }, title));
  const none = h('p', { class: 'note' }, nothing);
  const place = { class: 'scroll tall', tabindex: 0, role: 'region', 'aria-labelledby': `${section.id}-title` };
  const whole = h('div', place, h('table', {}, h('thead', {}, h('tr', {}, ...heads)), body));
  section.append(none, whole);
  return {
    /** @param {T[]} items @param {(item: T) => string} keyOf @param {(item: T) => string} versionOf @param {any} state */
    update(items, keyOf, versionOf, state) {
      show(none, items.length === 0);
      show(whole, items.length > 0);
      keyed(body, items, keyOf, () => h('tr', {}), (row, item) => {
        if (row.dataset.version === versionOf(item)) return;
        row.dataset.version = versionOf(item);
        fillRow(row, columns, item, state);
      });
    },
  };
}

/** Fill a row, and leave a button alone that is the same: it may have the focus.
 * @param {HTMLElement} row @param {any[]} columns @param {any} item @param {any} state */
function fillRow(row, columns, item, state) {
  columns.forEach(([, isNumber, read], index) => {
    const made = read(item, state);
    const cell = row.children[index] ?? row.appendChild(h('td', { class: isNumber ? 'number' : null }));
    if (typeof made === 'string') setText(cell, made);
    else if (cell.textContent !== made.textContent || !cell.firstElementChild) cell.replaceChildren(made);
  });
}

/** @param {HTMLElement} section */
export function createMisses(section) {
  /** @type {[string, boolean, (turn: import('../types.js').Turn, state: import('../state.js').State) => Node | string][]} */
  const columns = [
    ['Time', false, (turn) => clock(turn.at_s)],
    ['Session', false, (turn) => sessionButton(turn.session)],
    ['Turn', true, (turn) => count(turn.number)],
    ['Why', false, (turn) => causeBadge(turn.cause)],
    ['What changed', false, (turn) => (turn.change ? placeOfChange(turn.change) : '–')],
    ['Lost', true, (turn) => amount(turn.lost_tokens)],
    ['of history', true, (turn) => amount(turn.history_tokens)],
    ['Idle', true, (turn) => seconds(turn.idle_s)],
    ['TTFT', true, (turn) => seconds(turn.ttft_s)],
    ['Reason', false, (turn) => reasonBadge(turn.reason)],
    ['Replica', false, (turn, state) => state.nameOf(turn.replica)],
    ['Model', false, (turn) => clipped(text(turn.model))],
  ];
  const list = listTable(section, 'No turn has missed.', columns);
  return {
    /** @param {import('../state.js').State} state */
    update(state) {
      const key = (/** @type {import('../types.js').Turn} */ turn) => `${turn.session} ${turn.number} ${turn.at_s}`;
      list.update(state.misses, key, key, state);
    },
  };
}

/** @param {HTMLElement} section */
export function createSessions(section) {
  /** @type {[string, boolean, (session: any, state: import('../state.js').State) => Node | string][]} */
  const columns = [
    ['Session', false, (session) => sessionButton(session.session)],
    ['Last turn', false, (session) => clock(session.last_s)],
    ['Turns', true, (session) => count(session.turns)],
    ['Replica', false, (session, state) => state.nameOf(session.replica)],
    ['Prompt tokens', true, (session) => amount(session.prompt_tokens)],
    ['Cached', true, (session) => amount(session.cached_tokens)],
    ['Lost', true, (session) => amount(session.lost_tokens)],
    ['Last miss', false, (session) => causeBadge(session.cause)],
    ['Model', false, (session) => clipped(text(session.model))],
  ];
  const list = listTable(section, 'No session has been seen.', columns);
  return {
    /** @param {import('../state.js').State} state */
    update(state) {
      const version = (/** @type {any} */ session) => `${session.turns} ${session.last_s} ${session.lost_tokens}`;
      list.update(state.sessions, (session) => session.session, version, state);
    },
  };
}
