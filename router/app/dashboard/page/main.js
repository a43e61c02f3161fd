/** Joins what the router says with what is shown. */

import { TokenWanted, askJson } from './api.js';
import { follow } from './events.js';
import { State } from './state.js';
import { createStatus } from './status.js';
import { createTokenForm } from './token.js';
import { createHeadline } from './views/headline.js';
import { createLog } from './views/log.js';
import { createLosses } from './views/losses.js';
import { createPhases } from './views/phases.js';
import { createReplicas } from './views/replicas.js';
import { createSessionDialog } from './views/session.js';
import { createSharing } from './views/sharing.js';
import { createShares } from './views/shares.js';
import { createTrends } from './views/trends.js';
import { createMisses, createSessions } from './views/turns.js';
import { createWindows } from './windows.js';

const LISTS_EVERY_MS = 4_000; // misses and sessions, if anything happened
const HISTORY_EVERY_MS = 10_000; // and not before a step of it is over
const DRAW_EVERY_MS = 250; // at the most: the events of a busy router come 20 a second

/** @param {string} id @returns {any} */
const place = (id) => document.getElementById(id);

const state = new State();
const status = createStatus(place('status'), place('status-text'), place('about'));
const tokenForm = createTokenForm(place('token-form'), place('token'), place('token-error'));
const session = createSessionDialog(place('session'), (replica) => state.nameOf(replica));

/** @type {{topics: string[], view: {update: (state: any, changed: Set<string>) => void}}[]} */
const VIEWS = [
  { topics: ['overview'], view: createHeadline(place('cache'), place('saved')) },
  { topics: ['overview'], view: createLosses(place('lost')) },
  { topics: ['overview'], view: createShares(place('shares')) },
  { topics: ['overview'], view: createReplicas(place('replicas')) },
  { topics: ['overview', 'history'], view: createTrends(place('charts')) },
  { topics: ['overview'], view: createPhases(place('phases')) },
  { topics: ['overview'], view: createSharing(place('sharing')) },
  { topics: ['lists'], view: createMisses(place('misses')) },
  { topics: ['lists'], view: createSessions(place('sessions')) },
  { topics: ['decisions', 'overview'], view: createLog(place('decisions')) },
];

/** @type {Set<string>} */
let changed = new Set();
let drawing = false;
let drawn_ms = 0;

/** Draw what has changed, soon. @param {string} topic */
function show(topic) {
  changed.add(topic);
  if (drawing) return;
  drawing = true;
  const wait_ms = Math.max(0, drawn_ms + DRAW_EVERY_MS - performance.now());
  setTimeout(() => requestAnimationFrame(draw), wait_ms);
}

function draw() {
  drawing = false;
  drawn_ms = performance.now();
  if (state.overview === null) return;
  const topics = changed;
  changed = new Set();
  for (const { topics: wanted, view } of VIEWS) {
    if (wanted.some((topic) => topics.has(topic))) view.update(state, topics);
  }
  document.body.dataset.drawn = String(state.overview.now_s);
  if (topics.has('history')) document.body.dataset.charted = state.window;
  document.body.classList.add('ready');
}

const asked_ms = { history: -Infinity, lists: -Infinity };
let stale = true; // whether anything happened since the lists were read
let epoch = 0; // answers to questions of an earlier window or connection are dropped

async function readHistory() {
  asked_ms.history = performance.now();
  const asked = epoch;
  const history = await askJson(`/api/history?window=${state.window}`);
  if (asked !== epoch) return;
  state.history = history;
  show('history');
}

async function readLists() {
  asked_ms.lists = performance.now();
  stale = false;
  [state.misses, state.sessions] = await Promise.all([askJson('/api/misses?limit=50'), askJson('/api/sessions?limit=50')]);
  show('lists');
}

async function readDecisions() {
  state.setDecisions(await askJson('/api/decisions?limit=200'));
  show('decisions');
}

/** What can't be read now is asked for again soon; a lost connection is told of by the events.
 * @param {Promise<void>} reading */
const quietly = (reading) => reading.catch((error) => {
  stale = true;
  if (!(error instanceof TokenWanted)) status.note(error);
}); // prettier-ignore

function readWhatIsOld() {
  const now = performance.now();
  const step_ms = (state.history?.step_s ?? 0) * 1000;
  if (now - asked_ms.history >= Math.max(HISTORY_EVERY_MS, step_ms)) quietly(readHistory());
  if (stale && now - asked_ms.lists >= LISTS_EVERY_MS) quietly(readLists());
}

/** @param {string} event @param {any} data */
function heard(event, data) {
  if (event === 'overview') {
    windows.suit(data.uptime_s);
    state.setOverview(data);
    status.about(data);
    status.live();
    show('overview');
    readWhatIsOld();
  } else if (event === 'decision') {
    state.addDecision(data);
    stale = true;
    show('decisions');
    if (data.turn) quietly(session.heard(data.turn.session));
  } else if (event === 'skipped') {
    state.skipped += data.count;
    stale = true;
    show('decisions');
  }
}

const windows = createWindows(place('windows'), (window) => {
  state.window = window;
  epoch += 1;
  show('overview');
  if (state.overview !== null) quietly(readHistory());
});

document.addEventListener('click', (event) => {
  const button = event.target instanceof Element ? event.target.closest('[data-session]') : null;
  if (button instanceof HTMLElement) session.open(button.dataset.session ?? '');
});

follow('/api/events', {
  opened() {
    tokenForm.accepted();
    epoch += 1;
    stale = true;
    asked_ms.history = asked_ms.lists = -Infinity;
    state.forgetLive();
    quietly(readDecisions());
  },
  heard,
  lost: (why, again_ms) => status.lost(why, again_ms),
  tokenWanted: () => {
    status.locked();
    return tokenForm.ask();
  },
});
