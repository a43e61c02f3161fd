/** Elements made and kept up to date. Every string becomes text, never markup. */

const SVG = 'http://www.w3.org/2000/svg';

/**
 * @typedef {string | number | Node | null | undefined | false} Child
 * @typedef {Record<string, any>} Attributes  `class`, `on…` for listeners, `data`: of a <data>, else attributes;
 *   false and null leave one out.
 */

/** Make an HTML element. @param {string} tag @param {Attributes} [attributes] @param {...Child} children */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an SVG element. @param {string} tag @param {Attributes} [attributes] @param {...Child} children */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** @template {Element} E @param {E} element @param {Attributes} attributes @param {Child[]} children @returns {E} */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else setAttribute(element, name, value);
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** @param {Element} element @param {string} name @param {any} value */
export function setAttribute(element, name, value) {
  if (value === false || value === null || value === undefined) element.removeAttribute(name);
  else {
    const said = value === true ? '' : String(value);
    if (element.getAttribute(name) !== said) element.setAttribute(name, said);
  }
}

/** How an area looks that is lost: the pattern is in the page's markup, where an attribute finds it. */
export const HATCHED = { class: 'hatched', fill: 'url(#hatch)' };

/** Change an element's text if it is another. @param {Element} element @param {string | number} text */
export function setText(element, text) {
  const said = String(text);
  if (element.textContent !== said) element.textContent = said;
}

/** A number with its exact value beside what is shown: <data value="0.7234">72.3 %</data>.
 * @param {string} [field] What it is called in the API. @param {string} [className] */
export function figure(field, className) {
  return h('data', { 'data-field': field, class: className, value: '' }, '–');
}

/** @param {Element} element Made by `figure`. @param {number | null | undefined} value
 * @param {(value: number | null | undefined) => string} format */
export function setFigure(element, value, format) {
  setAttribute(element, 'value', value ?? '');
  setText(element, format(value));
}

/** Show an element, or not. @param {HTMLElement} element @param {boolean} shown */
export function show(element, shown) {
  if (element.hidden === shown) element.hidden = !shown;
}

/** @type {WeakMap<Element, Map<string, Element>>} */
const CHILDREN = new WeakMap();

/**
 * Make the children of an element those of `items`, in that order. A child stays the same element as long as its key
 * is there, so that what is open, focused or written in it survives.
 *
 * @template T
 * @param {Element} parent @param {T[]} items @param {(item: T) => string} keyOf
 * @param {(item: T) => Element} make @param {(element: any, item: T) => void} update
 */
export function keyed(parent, items, keyOf, make, update) {
  const before = CHILDREN.get(parent) ?? new Map();
  const after = new Map();
  const focused = document.activeElement;
  for (const item of items) {
    const key = keyOf(item);
    if (!after.has(key)) after.set(key, before.get(key) ?? make(item));
    update(after.get(key), item);
  }
  for (const [key, child] of before) if (!after.has(key)) child.remove();
  let place = parent.firstElementChild;
  for (const child of after.values()) {
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  CHILDREN.set(parent, after);
  if (focused instanceof HTMLElement && focused !== document.activeElement && parent.contains(focused)) {
    focused.focus({ preventScroll: true }); // a child that is moved loses it
  }
}

/** A bar of a ratio, with a tick for another one. It repeats a number beside it, so it is not read out. */
export function meter() {
  const fillPart = h('span', { class: 'meter-fill' });
  const tick = h('span', { class: 'meter-tick', hidden: true });
  return Object.assign(h('span', { class: 'meter', 'aria-hidden': 'true' }, fillPart, tick), { fillPart, tick });
}

/** @param {ReturnType<typeof meter>} bar @param {number | null} ratio @param {number | null} [other] */
export function setMeter(bar, ratio, other = null) {
  const clip = (/** @type {number} */ value) => `${(Math.max(0, Math.min(1, value)) * 100).toFixed(2)}%`;
  bar.classList.toggle('unknown', ratio === null);
  bar.fillPart.style.width = ratio === null ? '0' : clip(ratio);
  show(bar.tick, other !== null);
  if (other !== null) bar.tick.style.insetInlineStart = clip(other);
}
