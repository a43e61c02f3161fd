/** The admin API, with the token that it may want. */

const TOKEN = 'warmroute-admin-token';

export class TokenWanted extends Error {}

/** @returns {string | null} */
export const savedToken = () => sessionStorage.getItem(TOKEN);

/** Keep a token for as long as the tab is open; null forgets it. @param {string | null} token */
export function saveToken(token) {
  if (token === null) sessionStorage.removeItem(TOKEN);
  else sessionStorage.setItem(TOKEN, token);
}

/**
 * Ask, and return an answer that is no error. Throws TokenWanted, or an Error with the router's own words.
 *
 * @param {string} path @param {{signal?: AbortSignal, accept?: string}} [options]
 */
export async function ask(path, { signal, accept = 'application/json' } = {}) {
  const token = savedToken();
  const headers = new Headers({ accept });
  if (token !== null) headers.set('authorization', `Bearer ${token}`);
  const answer = await fetch(path, { headers, signal, cache: 'no-store', credentials: 'omit' });
  if (answer.status === 401) throw new TokenWanted();
  if (!answer.ok) throw new Error(await errorIn(answer));
  return answer;
}

/** @param {string} path @param {{signal?: AbortSignal}} [options] @returns {Promise<any>} */
export const askJson = async (path, options) => (await ask(path, options)).json();

/** @param {Response} answer */
async function errorIn(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `status ${answer.status}`;
  }
}
