/** Whether what is shown is live, in one line that is read out when it changes. */

import { setAttribute, setText } from './dom.js';
import { clock, seconds } from './format.js';

/** @param {HTMLElement} element @param {HTMLElement} words @param {HTMLElement} about */
export function createStatus(element, words, about) {
  /** @type {number | null} */
  let lost_s = null;
  const say = (/** @type {string} */ kind, /** @type {string} */ text) => {
    setAttribute(element, 'data-kind', kind);
    setText(words, text);
  };
  return {
    live() {
      lost_s = null;
      say('live', 'Live');
    },
    /** @param {string} why @param {number} again_ms */
    lost(why, again_ms) {
      lost_s ??= Date.now() / 1000;
      say('lost', `Not connected since ${clock(lost_s)}: ${why}. Next try in ${seconds(again_ms / 1000)}.`);
    },
    locked: () => say('locked', 'Waiting for the token'),
    /** @param {Error} error Of a question beside the events. */
    note(error) {
      if (lost_s === null && !(error instanceof TypeError)) say('lost', `Not all can be read: ${error.message}`);
    },
    /** @param {import('./types.js').Overview} overview */
    about({ version, policy, uptime_s }) {
      setText(about, `${version}, policy ${policy}, up ${seconds(Math.floor(uptime_s))}`);
    },
  };
}
