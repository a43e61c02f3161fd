/** What the API's words mean, for people: reasons of decisions, states of replicas; causes are beside this. */

import { CAUSES } from './causes.js';

/** @param {string | null} cause */
export const causeTitle = (cause) => (cause === null ? '' : (CAUSES[cause]?.title ?? cause));

/**
 * Why a replica was chosen, in the order in which they are stacked: from turns that found their history to those that
 * could not.
 *
 * @type {Record<string, string>}
 */
export const REASONS = {
  warm: 'The replica that holds most of the session’s history',
  session: 'The home that a session id names',
  pinned: 'The one replica that stores what the request names',
  shared: 'A new session, where a beginning that others share is held',
  new: 'A new session, nothing of it held anywhere',
  spilled: 'Away from a busy home',
  failover: 'Away from a home that is not available',
  drained: 'Away from a home that is being drained',
  'last-resort': 'No replica was fit, one was tried all the same',
  keyless: 'Prompt shorter than one block: by load',
  'unknown-shape': 'A body that is not read: by load',
  policy: 'By a policy that does not look at residency',
};

/** The shape that goes with a replica's state, so that colour is not all that tells. @type {Record<string, string>} */
export const STATE_SHAPES = {
  ready: 'M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2z',
  joining: 'M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2zm0 2.2a3.8 3.8 0 1 0 0 7.6 3.8 3.8 0 0 0 0-7.6z',
  suspect: 'M8 1.5 15 14H1z',
  ejected: 'M3.6 2 8 6.4 12.4 2 14 3.6 9.6 8l4.4 4.4-1.6 1.6L8 9.6 3.6 14 2 12.4 6.4 8 2 3.6z',
  draining: 'M8 14.5 1 2h14z',
};

/** Phases of a request, in their order: what the time went to. @type {Record<string, string>} */
export const PHASES = {
  overhead: 'Router: reading and deciding',
  queue: 'Waiting in the router for room',
  retry: 'Attempts that failed',
  connect: 'Connecting to the replica',
  prefill: 'Engine: its queue and prefill',
  decode: 'Engine: generating',
};

/** Where a prompt departs from the turn before it. @param {import('./types.js').Change} change */
export const placeOfChange = ({ message, role }) =>
  message === null ? `First difference: ${role}` : `First difference: message ${message} (${role})`;
