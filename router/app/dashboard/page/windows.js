/** The switch between the time windows; the choice stays in this tab. */

const KEY = 'warmroute-window';
const YOUNG_S = 300; // so long there is nothing yet that 5 minutes do not hold

/** @param {number} uptime_s Of the router. Not 24 h for an old one: what it does now would be a sliver. */
export const windowThatHolds = (uptime_s) => (uptime_s <= YOUNG_S ? '5m' : '1h');

/** @param {HTMLFormElement} form @param {(window: any) => void} chosen Called on each change, and at once if the user
 *   chose before. */
export function createWindows(form, chosen) {
  const radios = /** @type {HTMLInputElement[]} */ ([...form.querySelectorAll('input')]);
  let settled = false;
  const choose = (/** @type {string | null} */ value) => {
    const radio = radios.find((each) => each.value === value);
    if (!radio) return;
    settled = radio.checked = true;
    chosen(radio.value);
  };
  form.addEventListener('change', () => {
    const value = radios.find((each) => each.checked)?.value ?? null;
    if (value !== null) sessionStorage.setItem(KEY, value);
    choose(value);
  });
  choose(sessionStorage.getItem(KEY));
  return {
    /** Choose for who has not chosen, once. @param {number} uptime_s Of the router. */
    suit(uptime_s) {
      if (!settled) choose(windowThatHolds(uptime_s));
    },
  };
}
