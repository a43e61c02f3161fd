/** The router's events, read by fetch, since EventSource can't send a token. */

import { TokenWanted, ask } from './api.js';

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;
/** An overview comes every 2 s: who has heard nothing for this long hears nobody any more. */
const SILENCE_MS = 9_000;

/** Take server-sent events out of a text that comes in pieces. */
export class EventReader {
  #rest = '';

  /** @param {string} piece @returns {{event: string, data: string}[]} */
  read(piece) {
    const blocks = (this.#rest + piece).replaceAll('\r\n', '\n').split('\n\n');
    this.#rest = blocks.pop() ?? '';
    return blocks.map(oneEvent).filter((event) => event.data !== '');
  }
}

/** @param {string} block */
function oneEvent(block) {
  let event = 'message';
  const data = [];
  for (const line of block.split('\n')) {
    if (line.startsWith('event:')) event = line.slice(6).trim();
    else if (line.startsWith('data:')) data.push(line.slice(5).trimStart());
  }
  return { event, data: data.join('\n') };
}

/**
 * Follow the events for ever: on each loss of the connection wait a little longer, up to 10 s, and try again.
 *
 * @typedef {object} Listener
 * @property {() => void} opened
 * @property {(event: string, data: any) => void} heard
 * @property {(why: string, again_ms: number) => void} lost  `again_ms`: until it is tried again.
 * @property {() => Promise<void>} tokenWanted  Resolves when there is one to try.
 *
 * @param {string} path @param {Listener} listener
 */
export async function follow(path, listener) {
  let wait_ms = FIRST_WAIT_MS;
  for (;;) {
    try {
      await readOnce(path, listener, () => {
        wait_ms = FIRST_WAIT_MS;
      });
      listener.lost('the router ended the connection', wait_ms);
    } catch (error) {
      if (error instanceof TokenWanted) {
        await listener.tokenWanted();
        continue;
      }
      listener.lost(reasonOf(error), wait_ms);
    }
    await pause(wait_ms);
    wait_ms = Math.min(wait_ms * 2, LONGEST_WAIT_MS);
  }
}

/** @param {string} path @param {Listener} listener @param {() => void} works */
async function readOnce(path, listener, works) {
  const given_up = new AbortController();
  const reader = new EventReader();
  let silence = setTimeout(() => given_up.abort(), SILENCE_MS);
  try {
    const answer = await ask(path, { signal: given_up.signal, accept: 'text/event-stream' });
    const body = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    listener.opened();
    for (;;) {
      const { done, value } = await body.read();
      if (done) return;
      clearTimeout(silence);
      silence = setTimeout(() => given_up.abort(), SILENCE_MS);
      for (const { event, data } of reader.read(value)) {
        works();
        listener.heard(event, JSON.parse(data));
      }
    }
  } finally {
    clearTimeout(silence);
    given_up.abort();
  }
}

/** @param {unknown} error */
function reasonOf(error) {
  if (error instanceof DOMException && error.name === 'AbortError') return 'the router has fallen silent';
  if (error instanceof TypeError) return 'the router can’t be reached';
  return error instanceof Error ? error.message : String(error);
}

/** Wait, or until the network or the page comes back. @param {number} wait_ms */
function pause(wait_ms) {
  return new Promise((resolve) => {
    const over = () => {
      clearTimeout(timer);
      window.removeEventListener('online', over);
      resolve(undefined);
    };
    const timer = setTimeout(over, wait_ms);
    window.addEventListener('online', over);
  });
}
