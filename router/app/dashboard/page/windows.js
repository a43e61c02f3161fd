/** The switch between the time windows; the choice stays in this tab. */

const KEY = 'warmroute-window';

/** @param {HTMLFormElement} form @param {(window: any) => void} chosen Called at once, and on each change. */
export function createWindows(form, chosen) {
  const radios = /** @type {HTMLInputElement[]} */ ([...form.querySelectorAll('input')]);
  const saved = sessionStorage.getItem(KEY) ?? '1h';
  const first = radios.find((radio) => radio.value === saved) ?? radios[1];
  first.checked = true;
  form.addEventListener('change', () => {
    const radio = radios.find((each) => each.checked) ?? first;
    sessionStorage.setItem(KEY, radio.value);
    chosen(radio.value);
  });
  chosen(first.value);
}
