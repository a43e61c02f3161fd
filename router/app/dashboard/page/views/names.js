/** How replicas, states and causes are named on the page. */

import { h, s } from '../dom.js';
import { STATE_SHAPES, causeTitle } from '../words.js';

/** What an operator calls it, else its address: the admin port may show it. @param {import('../types.js').Replica} replica */
export function replicaLabel(replica) {
  if (replica.name) return replica.name;
  const place = replica.url.replace(/^https?:\/\//, '');
  return replica.rank === null ? place : `${place} rank ${replica.rank}`;
}

/** A state by shape, word and colour. @param {string} state */
export function stateBadge(state) {
  const shape = s('path', { d: STATE_SHAPES[state] ?? STATE_SHAPES.joining });
  const icon = s('svg', { viewBox: '0 0 16 16', width: 12, height: 12, 'aria-hidden': 'true' }, shape);
  return h('span', { class: `state state-${state}` }, icon, h('span', {}, state));
}

/** A reason as a small label in its colour. @param {string} reason */
export const reasonBadge = (reason) => h('span', { class: `badge reason-${reason}` }, reason);

/** @param {string | null} cause */
export const causeBadge = (cause) => (cause ? h('span', { class: 'cause' }, causeTitle(cause)) : h('span', { class: 'quiet' }, '–'));

/** A button that opens a session. @param {string | undefined | null} session */
export function sessionButton(session) {
  if (!session) return h('span', { class: 'quiet' }, '–');
  return h('button', { type: 'button', class: 'link', 'data-session': session }, session);
}

/** Something long that is cut where there is no room; it can be hovered over, and copied whole.
 * @param {string} whole @param {string} [className] */
export const clipped = (whole, className = '') => h('span', { class: `clipped ${className}`.trim(), title: whole }, whole);
