/** What is being lost, and why: ranked, each with what happened and what to do about it. */

import { figure, h, keyed, meter, setFigure, setMeter, setText, show } from '../dom.js';
import { amount, count, percent, seconds, unit } from '../format.js';
import { CAUSES } from '../causes.js';
import { causeTitle } from '../words.js';

const FIRST = 5; // what fits beside the first answer

/** @param {HTMLElement} section */
export function createLosses(section) {
  const lost = figure('lost_tokens');
  const share = h('span', {});
  const head = h('p', { class: 'beside' }, h('b', {}, lost), share);
  const none = h('p', { class: 'note' }, 'Nothing was lost in this window.');
  const list = h('ol', { class: 'losses', 'data-list': 'causes' });
  const rest = h('ol', { class: 'losses', 'data-list': 'causes' });
  const more = h('summary', {});
  const others = h('details', { class: 'others' }, more, rest);
  section.append(head, none, list, others);
  return {
    /** @param {import('../state.js').State} state */
    update(state) {
      const all = state.overview.windows[state.window];
      setFigure(lost, all.lost_tokens, amount);
      const part = all.prompt_tokens ? all.lost_tokens / all.prompt_tokens : null;
      setText(share, `${unit(all.lost_tokens, ' token')} (${percent(part)}) computed again needlessly`);
      const causes = all.causes.filter((loss) => loss.tokens > 0);
      show(none, causes.length === 0);
      show(head, causes.length > 0);
      const most = causes[0]?.tokens ?? 1;
      const update = (/** @type {any} */ row, /** @type {import('../types.js').Loss} */ loss) => row.set(loss, most);
      keyed(list, causes.slice(0, FIRST), (loss) => loss.cause, lossRow, update);
      keyed(rest, causes.slice(FIRST), (loss) => loss.cause, lossRow, update);
      show(others, causes.length > FIRST);
      setText(more, `${causes.length - FIRST} more`);
    },
  };
}

/** @param {import('../types.js').Loss} loss */
function lossRow({ cause }) {
  const words = CAUSES[cause];
  const bar = meter();
  const [tokens, turns, prefill] = [figure('tokens', 'number'), figure('turns'), figure('prefill_s')];
  const [ofTokens, ofTurns] = [h('span', {}), h('span', {})];
  const row = h(
    'li',
    { 'data-cause': cause },
    h(
      'details',
      {},
      h(
        'summary',
        {},
        h('span', { class: 'loss-title' }, causeTitle(cause)),
        h('span', { class: 'loss-figures' }, tokens, ofTokens),
        bar,
        h('span', { class: 'loss-more' }, turns, ofTurns, ', ', prefill, ' of prefill'),
        words && h('span', { class: 'loss-meaning' }, words.meaning),
      ),
      h('p', { class: 'cure' }, h('b', {}, 'What helps: '), words?.cure ?? 'This page does not know this cause.'),
    ),
  );
  return Object.assign(row, {
    /** @param {import('../types.js').Loss} loss @param {number} most */
    set(loss, most) {
      setFigure(tokens, loss.tokens, amount);
      setText(ofTokens, unit(loss.tokens, ' token'));
      setFigure(turns, loss.turns, count);
      setText(ofTurns, unit(loss.turns, ' turn'));
      setFigure(prefill, loss.prefill_s, seconds);
      setMeter(bar, loss.tokens / most);
    },
  });
}
