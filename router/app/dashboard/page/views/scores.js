/** What a turn would have cost on each replica. */

import { h } from '../dom.js';
import { amount, count, seconds } from '../format.js';

const TERMS = ['Price', 'Queue', 'Own work', 'Later cost', 'Evicted', 'Streams'];
const COLUMNS = ['Replica', ...TERMS, 'Matched tokens', 'Matched blocks'];

/** @param {{replica: string, home: string | null, scores: import('../types.js').Score[]}} turn
 * @param {(replica: string) => string} nameOf */
export function scoreTable({ replica, home, scores }, nameOf) {
  const head = COLUMNS.map((title, index) => h('th', { scope: 'col', class: index ? 'number' : null }, title));
  const rows = scores.map((score) => {
    const marks = [score.replica === replica && 'chosen', score.replica === home && 'home'].filter(Boolean).join(', ');
    const name = h('th', { scope: 'row' }, nameOf(score.replica), marks && h('span', { class: 'id' }, marks));
    const cells = [
      seconds(score.total_s),
      seconds(score.queue_s),
      seconds(score.own_s),
      seconds(score.balance_s),
      seconds(score.evicted_s),
      seconds(score.streams_s),
      amount(score.matched_tokens),
      count(score.matched_blocks),
    ];
    const chosen = score.replica === replica ? 'chosen' : null;
    return h('tr', { class: chosen }, name, ...cells.map((text) => h('td', { class: 'number' }, text)));
  });
  return h('table', { class: 'scores' }, h('thead', {}, h('tr', {}, ...head)), h('tbody', {}, ...rows));
}
