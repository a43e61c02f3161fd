/** Asks for the admin port's token. It stays in this tab, and goes nowhere but into the requests' heads. */

import { saveToken, savedToken } from './api.js';
import { setText, show } from './dom.js';

/** @param {HTMLFormElement} form @param {HTMLInputElement} input @param {HTMLElement} trouble */
export function createTokenForm(form, input, trouble) {
  /** @type {(() => void) | null} */
  let given = null;
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    saveToken(input.value.trim());
    input.value = '';
    setText(trouble, '');
    given?.();
  });
  return {
    /** Ask for a token; resolves when one is given. @returns {Promise<void>} */
    ask() {
      setText(trouble, savedToken() === null ? '' : 'That token was refused.');
      saveToken(null);
      show(form, true);
      input.focus();
      return new Promise((resolve) => {
        given = () => resolve(undefined);
      });
    },
    accepted() {
      show(form, false);
    },
  };
}
