/** One session's turns: where each went, what matched, what missed and why. */

import { askJson } from '../api.js';
import { h, s, setText, show } from '../dom.js';
import { amount, clock, count, plural, seconds, text, unit } from '../format.js';
import { CAUSES } from '../causes.js';
import { causeTitle, placeOfChange } from '../words.js';
import { reasonBadge } from './names.js';
import { scoreTable } from './scores.js';

/** @typedef {import('../types.js').Turn} Turn */

const COLUMNS = ['Turn', 'Time', 'Replica', 'Reason', 'Prompt', 'What came of it', 'Cached', 'Lost', 'New', 'Idle', 'TTFT', 'Status'];
const FIRST_NUMBER = 6; // columns from here on are numbers, as are two before

/** @param {HTMLDialogElement} dialog @param {(replica: string) => string} nameOf */
export function createSessionDialog(dialog, nameOf) {
  const title = h('h2', { id: 'session-title' });
  const close = h('button', { type: 'button', class: 'close', 'aria-label': 'Close', onclick: () => dialog.close() }, '×');
  const summary = h('p', { class: 'note' });
  const trouble = h('p', { class: 'trouble', role: 'alert', hidden: true });
  const turns = h('table', { class: 'turns' }, h('thead', {}, h('tr', {}, ...COLUMNS.map(headCell))));
  const place = { class: 'scroll', tabindex: 0, role: 'region', 'aria-labelledby': 'session-title' };
  dialog.append(h('div', { class: 'dialog-head' }, title, close), summary, trouble, legend(), h('div', place, turns));
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog) dialog.close(); // beside it
  });
  let shown = '';
  const load = async () => {
    const asked = shown;
    try {
      const session = await askJson(`/api/sessions/${encodeURIComponent(asked)}`);
      if (asked !== shown) return;
      show(trouble, false);
      const lost = session.turns.reduce((/** @type {number} */ sum, /** @type {Turn} */ turn) => sum + turn.lost_tokens, 0);
      setText(summary, `${text(session.model)}, ${plural(session.turns.length, 'turn')} kept, ${amount(lost)} ${unit(lost, 'token')} lost`);
      keyedTurns(turns, session.turns, nameOf);
    } catch (error) {
      if (asked !== shown) return;
      setText(trouble, error instanceof Error && error.message ? error.message : 'It can’t be read.');
      show(trouble, true);
    }
  };
  return {
    /** @param {string} session */
    async open(session) {
      if (session !== shown) {
        setText(summary, ' ');
        for (const body of [...turns.tBodies]) body.remove();
      }
      shown = session;
      setText(title, `Session ${session}`);
      if (!dialog.open) dialog.showModal();
      await load();
    },
    /** Read it again if it is open and concerned. @param {string} session */
    async heard(session) {
      if (dialog.open && session === shown) await load();
    },
  };
}

/** @param {string} title @param {number} index */
function headCell(title, index) {
  return h('th', { scope: 'col', class: isNumber(index) ? 'number' : null }, title);
}

/** @param {number} index */
const isNumber = (index) => index === 0 || index === 4 || index >= FIRST_NUMBER;

function legend() {
  const item = (/** @type {string} */ kind, /** @type {string} */ words) => h('li', {}, h('span', { class: `sample ${kind}` }), words);
  return h('ul', { class: 'legend' }, item('part-cached', 'from cache'), item('part-lost', 'lost'), item('part-new', 'new in this turn'));
}

/** Each turn is a body of its own: its row, and below it why it missed. @param {HTMLTableElement} table
 * @param {Turn[]} turns @param {(replica: string) => string} nameOf */
function keyedTurns(table, turns, nameOf) {
  const longest = Math.max(1, ...turns.map((turn) => turn.prompt_tokens));
  const kept = new Map([...table.tBodies].map((body) => [body.dataset.key, body]));
  for (const turn of turns) {
    const key = `${turn.number} ${turn.at_s}`;
    const body = kept.get(key) ?? table.appendChild(turnBody(turn, key, nameOf));
    kept.delete(key);
    drawParts(/** @type {SVGElement} */ (body.querySelector('svg.parts')), turn, longest);
  }
  for (const body of kept.values()) body.remove();
}

/** @param {Turn} turn @param {string} key @param {(replica: string) => string} nameOf */
function turnBody(turn, key, nameOf) {
  const cells = [
    count(turn.number),
    clock(turn.at_s),
    nameOf(turn.replica),
    reasonBadge(turn.reason),
    amount(turn.prompt_tokens),
    s('svg', { class: 'parts', width: 180, height: 12, 'aria-hidden': 'true' }),
    amount(turn.cached_tokens),
    amount(turn.lost_tokens),
    amount(Math.max(0, turn.prompt_tokens - turn.history_tokens)),
    seconds(turn.idle_s),
    seconds(turn.ttft_s),
    String(turn.status),
  ];
  const row = h('tr', { 'data-turn': turn.number }, ...cells.map((cell, index) => h('td', { class: isNumber(index) ? 'number' : null }, cell)));
  const body = h('tbody', { 'data-key': key }, row);
  if (turn.lost_tokens > 0 || turn.change) body.append(whyRow(turn, nameOf));
  return body;
}

/** @param {Turn} turn @param {(replica: string) => string} nameOf */
function whyRow(turn, nameOf) {
  const words = turn.cause ? CAUSES[turn.cause] : undefined;
  const why = h('p', {}, turn.cause && h('b', {}, `${causeTitle(turn.cause)}. `), words?.meaning ?? '');
  if (turn.change) why.append(` ${placeOfChange(turn.change)}, after ${plural(turn.change.kept_tokens, 'token that is as it was', 'tokens that are as they were')}.`);
  if (turn.home && turn.home !== turn.replica) why.append(` Its history was on ${nameOf(turn.home)}.`);
  const more = [words && h('p', { class: 'cure' }, words.cure), turn.scores.length > 0 && scoreTable(turn, nameOf)];
  const details = h('details', {}, h('summary', {}, 'What helps, and what each replica would have cost'), ...more);
  return h('tr', { class: 'why-row' }, h('td', { colspan: COLUMNS.length, class: 'why' }, why, details));
}

/** A turn's prompt as a bar: from cache, lost, and what was new. @param {SVGElement} svg @param {Turn} turn
 * @param {number} longest Prompt of the longest turn, in tokens. */
function drawParts(svg, turn, longest) {
  const cached = Math.min(turn.cached_tokens ?? turn.matched_tokens, turn.prompt_tokens);
  const lost = Math.max(0, Math.min(turn.lost_tokens, turn.prompt_tokens - cached));
  let x = 0;
  const part = (/** @type {string} */ kind, /** @type {number} */ tokens) => {
    const width = (tokens / longest) * 180;
    const look = kind === 'part-lost' ? { class: kind, fill: 'url(#hatch)' } : { class: kind };
    const box = s('rect', { ...look, x: x.toFixed(1), y: 1, width: width.toFixed(1), height: 10 });
    x += width;
    return box;
  };
  svg.replaceChildren(part('part-cached', cached), part('part-lost', lost), part('part-new', turn.prompt_tokens - cached - lost));
}

