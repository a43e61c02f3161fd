/** What waits in the router, how Redis is, and who else routes. */

import { figure, h, keyed, setFigure, setText, show } from '../dom.js';
import { amount, bytes, count, seconds } from '../format.js';
import { stateBadge } from './names.js';

/** @param {HTMLElement} section */
export function createSharing(section) {
  const queue = h('ul', { class: 'plain', 'aria-label': 'Waiting in the router' });
  const size = figure('queue.bytes', 'number');
  const redis = createRedis();
  const routers = h('tbody', {});
  const head = h('tr', {}, ...['Router', 'Heard', 'To prefill', 'In flight'].map((title, index) => h('th', { scope: 'col', class: index ? 'number' : null }, title)));
  const alone = h('p', { class: 'note' }, 'This router is on its own.');
  const others = h('div', { class: 'scroll', hidden: true }, h('table', {}, h('thead', {}, head), routers));
  section.append(
    h('h3', {}, 'Waiting in the router'),
    queue,
    h('ul', { class: 'plain' }, h('li', {}, h('span', {}, 'Bodies held'), size)),
    h('h3', {}, 'Redis'),
    redis.element,
    h('h3', {}, 'Routers'),
    alone,
    others,
  );
  return {
    /** @param {import('../state.js').State} state */
    update({ overview }) {
      keyed(queue, Object.entries(overview.queue.requests), ([name]) => name, queueRow, fillQueueRow);
      setFigure(size, overview.queue.bytes, bytes);
      redis.update(overview.redis);
      keyed(routers, overview.routers, (router) => router.id, routerRow, fillRouterRow);
      show(alone, overview.routers.length === 0);
      show(others, overview.routers.length > 0);
    },
  };
}

/** @param {[string, number]} entry */
const queueRow = ([name]) => h('li', { 'data-queue': name }, h('span', {}, name), figure('queue.requests', 'number'));

/** @param {HTMLElement} row @param {[string, number]} entry */
const fillQueueRow = (row, [, waiting]) => setFigure(row.lastElementChild, waiting, count);

const REDIS_STATES = { up: 'ready', slow: 'suspect', refusing: 'suspect', down: 'ejected' };

function createRedis() {
  const [state, words] = [h('span', {}), h('span', { class: 'note' })];
  let shown = '';
  return {
    element: h('p', { class: 'redis' }, state, words),
    /** @param {import('../types.js').Overview['redis']} redis */
    update(redis) {
      if ((redis?.state ?? '') !== shown) {
        shown = redis?.state ?? '';
        state.replaceChildren(...(redis ? [badge(redis.state)] : []));
      }
      setText(words, redis === null ? 'Not used: nothing is shared with other routers.' : wordsOf(redis));
    },
  };
}

/** @param {string} state */
function badge(state) {
  const made = stateBadge(/** @type {any} */ (REDIS_STATES)[state] ?? 'joining');
  setText(/** @type {Element} */ (made.lastElementChild), state);
  return made;
}

/** @param {NonNullable<import('../types.js').Overview['redis']>} redis */
function wordsOf({ address, cause, backlog, dropped }) {
  const given_up = Object.values(dropped).reduce((sum, value) => sum + value, 0);
  const parts = [address, cause, `${count(backlog)} to send`, given_up ? `${count(given_up)} given up` : ''];
  return parts.filter(Boolean).join(', ');
}

/** @param {import('../types.js').Overview['routers'][number]} router */
function routerRow({ id }) {
  const figures = [figure('heard_s'), figure('uncached_tokens'), figure('streams')];
  const mark = h('span', {});
  const row = h('tr', {}, h('th', { scope: 'row' }, id, mark), ...figures.map((each) => h('td', { class: 'number' }, each)));
  return Object.assign(row, { figures, mark });
}

/** @param {ReturnType<typeof routerRow>} row @param {import('../types.js').Overview['routers'][number]} router */
function fillRouterRow(row, router) {
  const ledgers = Object.values(router.ledgers);
  setText(row.mark, router.self ? ' (this one)' : '');
  setFigure(row.figures[0], router.self ? 0 : router.heard_s, (value) => (value ? `${seconds(value)} ago` : 'now'));
  setFigure(row.figures[1], ledgers.reduce((sum, ledger) => sum + ledger.uncached_tokens, 0), amount);
  setFigure(row.figures[2], ledgers.reduce((sum, ledger) => sum + ledger.streams, 0), count);
}
