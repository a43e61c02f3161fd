/** What all charts have: a title, a legend that tells values, a drawing that fits its place, a text, and a table. */

import { HATCHED, h, keyed, s, setAttribute, setText, show } from '../dom.js';
import { table as plainTable } from '../table.js';
import { plotIn } from './axes.js';

/**
 * @typedef {object} LegendItem
 * @property {string} key
 * @property {string} label
 * @property {string} value
 * @property {string} ink  Class that gives the colour.
 * @property {'line' | 'dashed' | 'box' | 'hatched' | 'dot' | 'diamond'} mark
 *
 * @typedef {object} Drawn
 * @property {(x_px: number) => number} indexAt  Which step is at a place.
 * @property {(index: number) => number} placeOf
 *
 * @typedef {object} ChartPlan
 * @property {string} title
 * @property {string} [note]
 * @property {number} height_px
 * @property {(plot: import('./axes.js').Plot, data: any) => Drawn | null} draw
 * @property {(data: any, index: number | null) => LegendItem[]} legend
 * @property {(data: any, index: number) => string} [moment]  What is at a step, such as its time.
 * @property {(data: any) => string} describe  The chart in one sentence, for who does not see it.
 * @property {(data: any) => import('../table.js').TablePlan} table
 */

export class Chart {
  #plan;
  #data = null;
  #drawn = null;
  #width = 0;

  /** @param {ChartPlan} plan */
  constructor(plan) {
    this.#plan = plan;
    this.legend = h('ul', { class: 'legend' });
    this.moment = h('span', { class: 'moment' });
    this.svg = s('svg', { class: 'drawing', role: 'img', height: plan.height_px });
    this.pointer = s('line', { class: 'pointer', visibility: 'hidden' });
    this.place = h('div', { class: 'place' }, this.svg);
    this.place.style.height = `${plan.height_px}px`;
    this.details = h('details', { class: 'as-table', ontoggle: () => this.#fillTable() });
    this.details.append(h('summary', {}, 'As a table', h('span', { class: 'only-read' }, `: ${plan.title}`)));
    this.rows = h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': `${plan.title}, as a table` });
    this.details.append(this.rows);
    this.element = h(
      'figure',
      { class: 'chart' },
      h('figcaption', {}, h('h3', {}, plan.title), plan.note && h('p', { class: 'note' }, plan.note), this.moment),
      this.legend,
      this.place,
      this.details,
    );
    this.svg.addEventListener('pointermove', (event) => this.#point(event.offsetX));
    this.svg.addEventListener('pointerleave', () => this.#point(null));
    new ResizeObserver(([entry]) => this.#resized(entry.contentRect.width)).observe(this.place);
  }

  /** @param {any} data */
  update(data) {
    this.#data = data;
    this.#draw();
    setAttribute(this.svg, 'aria-label', `${this.#plan.title}. ${this.#plan.describe(data)}`);
    this.#tell(null);
    this.#fillTable();
  }

  /** @param {number} width */
  #resized(width) {
    if (Math.abs(width - this.#width) < 1) return;
    this.#width = width;
    setAttribute(this.svg, 'width', width);
    if (this.#data !== null) this.#draw();
  }

  #draw() {
    if (this.#width < 60) return;
    this.svg.replaceChildren();
    const plot = plotIn(this.svg, this.#width, this.#plan.height_px);
    this.#drawn = this.#plan.draw(plot, this.#data);
    setAttribute(this.pointer, 'y1', plot.top);
    setAttribute(this.pointer, 'y2', plot.bottom);
    setAttribute(this.pointer, 'visibility', 'hidden');
    this.svg.append(this.pointer);
  }

  /** @param {number | null} x */
  #point(x) {
    if (this.#drawn === null || this.#data === null) return;
    const index = x === null ? null : this.#drawn.indexAt(x);
    if (index !== null) {
      const at = this.#drawn.placeOf(index);
      setAttribute(this.pointer, 'x1', at);
      setAttribute(this.pointer, 'x2', at);
    }
    setAttribute(this.pointer, 'visibility', index === null ? 'hidden' : 'visible');
    this.#tell(index);
  }

  /** @param {number | null} index */
  #tell(index) {
    setText(this.moment, index === null ? '' : (this.#plan.moment?.(this.#data, index) ?? ''));
    keyed(this.legend, this.#plan.legend(this.#data, index), (item) => item.key, legendItem, fillLegendItem);
  }

  #fillTable() {
    if (this.details.open && this.#data !== null) this.rows.replaceChildren(plainTable(this.#plan.table(this.#data)));
  }
}

/** @param {LegendItem} item */
function legendItem(item) {
  return h('li', { class: item.ink }, swatch(item.mark), h('span', {}, item.label), h('b', {}));
}

/** @param {HTMLElement} element @param {LegendItem} item */
function fillLegendItem(element, item) {
  const value = /** @type {HTMLElement} */ (element.lastElementChild);
  setText(value, item.value);
  show(value, item.value !== '');
}

/** @param {LegendItem['mark']} mark */
function swatch(mark) {
  const shape = {
    line: () => s('line', { x1: 0, x2: 16, y1: 5, y2: 5, class: 'stroke' }),
    dashed: () => s('line', { x1: 0, x2: 16, y1: 5, y2: 5, class: 'stroke dashed' }),
    box: () => s('rect', { x: 3, y: 0, width: 10, height: 10, class: 'area' }),
    hatched: () => s('rect', { x: 3, y: 0, width: 10, height: 10, ...HATCHED }),
    dot: () => s('circle', { cx: 8, cy: 5, r: 4, class: 'area' }),
    diamond: () => s('path', { d: 'M8 0 13 5 8 10 3 5z', class: 'area' }),
  }[mark]();
  return s('svg', { class: 'swatch', viewBox: '0 0 16 10', width: 16, height: 10, 'aria-hidden': 'true' }, shape);
}
