/** All that the page knows, and what of it has changed since it was last drawn. */

import { replicaLabel } from './views/names.js';

/** @typedef {'overview' | 'history' | 'decisions' | 'lists'} Topic */

const KEPT_DECISIONS = 1000; // as many as the router keeps

export class State {
  /** @type {import('./types.js').WindowName} */
  window = '1h';
  /** @type {import('./types.js').Overview | null} */
  overview = null;
  /** @type {import('./types.js').History | null} */
  history = null;
  /** Newest first. @type {(import('./types.js').Decided & {key: string})[]} */
  decisions = [];
  /** @type {import('./types.js').Turn[]} */
  misses = [];
  /** @type {any[]} */
  sessions = [];
  /** Decisions heard of since the page was opened. */
  heard = 0;
  /** Decisions that the router left out, since they came too fast. */
  skipped = 0;

  /** @type {Map<string, string>} */
  #names = new Map();

  /** How a replica is called; one that has left by its id. */
  nameOf = (/** @type {string} */ replica) => this.#names.get(replica) ?? replica;

  /** @param {import('./types.js').Overview} overview */
  setOverview(overview) {
    this.overview = overview;
    this.#names = new Map(overview.replicas.map((replica) => [replica.id, replicaLabel(replica)]));
  }

  /** Put the router's list in place of what was heard. @param {import('./types.js').Decided[]} rows Newest first. */
  setDecisions(rows) {
    const listed = rows.map(withKey);
    const known = new Set(listed.map((row) => row.key));
    const newer = this.decisions.filter((row) => !known.has(row.key) && row.live);
    this.decisions = [...newer, ...listed].slice(0, KEPT_DECISIONS);
  }

  /** @param {import('./types.js').Decided} row */
  addDecision(row) {
    const added = { ...withKey(row), live: true };
    this.heard += 1;
    if (this.decisions.slice(0, 100).some((each) => each.key === added.key)) return;
    this.decisions.unshift(added);
    this.decisions.length = Math.min(this.decisions.length, KEPT_DECISIONS);
  }

  /** Forget what was heard of a connection that is lost: the router's own list comes next. */
  forgetLive() {
    this.decisions = this.decisions.map((row) => ({ ...row, live: false }));
  }
}

/** Request ids come from clients, who may use one twice. @param {import('./types.js').Decided} row */
const withKey = (row) => ({ ...row, live: false, key: `${row.request_id} ${row.total_s} ${row.overhead_s}` });
