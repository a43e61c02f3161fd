/** All that is drawn over time, and by how long prompts and pauses are. */

import { Chart } from '../charts/chart.js';
import { describeLengths, drawLengths, lengthLegend, lengthName, lengthTable } from '../charts/lengths.js';
import { describeLines, drawLines, lineLegend, lineTable } from '../charts/lines.js';
import { ageSentence, binName, describeReturns, drawReturns, returnLegend, returnSentence, returnTable } from '../charts/returns.js';
import { describeStacks, drawStacks, stackLegend, stackTable, stepName } from '../charts/stacks.js';
import { h, setText } from '../dom.js';
import { amount, axisSeconds, count, percent, seconds } from '../format.js';
import { CAUSES } from '../causes.js';
import { REASONS, causeTitle } from '../words.js';
import { replicaLabel } from './names.js';

/** @typedef {import('../types.js').History} History */

const TALL_PX = 190;

/** @param {string} title @param {import('../charts/lines.js').LineStyle} style @param {string} [note] */
function lineChart(title, style, note) {
  return new Chart({
    title,
    note,
    height_px: TALL_PX,
    draw: drawLines(style),
    legend: lineLegend(style),
    moment: stepName,
    describe: describeLines(style),
    table: lineTable(style),
  });
}

/** @param {string} title @param {import('../charts/stacks.js').StackStyle} style @param {string} [note] */
function stackChart(title, style, note) {
  return new Chart({
    title,
    note,
    height_px: TALL_PX,
    draw: drawStacks(style),
    legend: stackLegend(style),
    moment: stepName,
    describe: describeStacks(style),
    table: stackTable(style),
  });
}

/** @param {HTMLElement} section */
export function createTrends(section) {
  const ratio = lineChart('Share of prompt tokens from cache', { largest: 1, format: percent, nothing: 'No prompts in this window' });
  const reasons = stackChart('Decisions by reason', { format: count, nothing: 'No decisions in this window' });
  const ttft = lineChart('Time to first token', { log: true, format: seconds, axis: axisSeconds, nothing: 'No streamed answers in this window' });
  const causes = stackChart('Tokens lost, by cause', { format: amount, nothing: 'Nothing was lost in this window' });
  const lengths = new Chart({
    title: 'Time to first token by prompt length',
    height_px: TALL_PX,
    draw: drawLengths,
    legend: lengthLegend,
    moment: lengthName,
    describe: describeLengths,
    table: lengthTable,
  });
  const returns = new Chart({
    title: 'After how long sessions come back',
    height_px: TALL_PX,
    draw: drawReturns,
    legend: returnLegend,
    moment: binName,
    describe: describeReturns,
    table: returnTable,
  });
  const [late, ages] = [h('b', { id: 'returns-sentence' }), h('span', {})];
  returns.details.before(h('p', { class: 'note' }, late, ' ', ages));
  lengths.details.before(h('p', { class: 'note' }, 'From the median (mark) up to the 95th percentile (bar).'));
  for (const chart of [ratio, reasons, ttft, lengths, causes, returns]) section.append(panel(chart));
  return {
    /** @param {import('../state.js').State} state @param {Set<string>} changed */
    update({ overview, window, history }, changed) {
      if (changed.has('overview')) {
        const { returns: came, causes: losses, ttft_by_length } = overview.windows[window];
        const data = { returns: came, ages: agesOf(overview.replicas), evicted: hasEvicted(came, losses) };
        lengths.update(ttft_by_length);
        returns.update(data);
        setText(late, returnSentence(data));
        setText(ages, ageSentence(data));
      }
      if (changed.has('history') && history !== null) {
        ratio.update(ratioData(history));
        ttft.update(ttftData(history));
        reasons.update(stackData(overview.now_s, history, history.reasons, Object.keys(REASONS), (reason) => [reason, `reason-${reason}`]));
        causes.update(causeData(overview.now_s, history));
      }
    },
  };
}

/** @param {Chart} chart */
const panel = (chart) => h('div', { class: 'panel' }, chart.element);

/** @param {import('../types.js').Replica[]} replicas */
const agesOf = (replicas) =>
  replicas
    .filter((replica) => replica.eviction_age_s !== null)
    .map((replica) => ({ replica: replicaLabel(replica), age_s: replica.eviction_age_s }));

/** Whether turns of the window missed what had been evicted.
 * @param {import('../types.js').Returns} returns @param {import('../types.js').Loss[]} losses */
export const hasEvicted = ({ too_late }, losses) =>
  too_late.some((turns) => turns > 0) || losses.some(({ cause, turns }) => cause === 'evicted' && turns > 0);

/** @param {History} history */
function ratioData({ start_s, step_s, predicted_cached_tokens, prompt_tokens, ...columns }) {
  const reported = columns.reported_prompt_tokens.some((tokens) => tokens);
  const values = reported
    ? ratios(columns.engine_cached_tokens, columns.reported_prompt_tokens)
    : ratios(columns.counter_hits_tokens, columns.counter_queries_tokens);
  const lines = [
    { key: 'reported', label: reported ? 'reported by engines' : 'counted by engines', ink: 'ink-warm', values },
    { key: 'predicted', label: 'predicted', ink: 'ink-cold', dashed: true, values: ratios(predicted_cached_tokens, prompt_tokens) },
  ];
  return { start_s, step_s, lines };
}

/** @param {(number | null)[]} parts @param {(number | null)[]} wholes */
const ratios = (parts, wholes) => parts.map((part, index) => (wholes[index] ? (part ?? 0) / wholes[index] : null));

/** @param {History} history */
function ttftData({ start_s, step_s, ttft }) {
  const line = (/** @type {'warm' | 'cold'} */ kind, /** @type {'p50' | 'p95'} */ rank) => ({
    key: `${kind} ${rank}`,
    label: `${kind} ${rank}`,
    ink: `ink-${kind}`,
    dashed: rank === 'p95',
    values: ttft[`${kind}_${rank}_s`] ?? [],
  });
  return { start_s, step_s, lines: [line('warm', 'p50'), line('warm', 'p95'), line('cold', 'p50'), line('cold', 'p95')] };
}

const RANKED = 6; // as many colours as tell apart; the rest is drawn as one

/** Causes in the order of what they cost; all but the largest as one part.
 * @param {number} now_s @param {History} history */
function causeData(now_s, history) {
  const cost = (/** @type {string} */ cause) => history.causes[cause].reduce((sum, value) => (sum ?? 0) + (value ?? 0), 0) ?? 0;
  const ranked = Object.keys(history.causes).filter((cause) => cost(cause) > 0).sort((a, b) => cost(b) - cost(a));
  const shown = ranked.length > RANKED ? ranked.slice(0, RANKED - 1) : ranked;
  const data = stackData(now_s, history, history.causes, shown, (cause) => [causeTitle(cause), `rank-${shown.indexOf(cause)}`]);
  const rest = ranked.slice(shown.length);
  if (rest.length) {
    const values = history.requests.map((_, index) => rest.reduce((sum, cause) => sum + (history.causes[cause][index] ?? 0), 0));
    data.parts.push({ key: 'rest', label: `${rest.length} others`, ink: 'rank-5', values });
  }
  return data;
}

/** @param {number} now_s @param {History} history @param {Record<string, (number | null)[]>} columns @param {string[]} order
 * @param {(key: string) => [string, string]} nameOf Label and ink. */
function stackData(now_s, { start_s, step_s, requests }, columns, order, nameOf) {
  const unknown = Object.keys(columns).filter((key) => !order.includes(key) && !(key in CAUSES));
  const present = [...order, ...unknown].filter((key) => columns[key]?.some((value) => value));
  const parts = present.map((key) => {
    const [label, ink] = nameOf(key);
    return { key, label, ink, values: columns[key] };
  });
  return { start_s, step_s, steps: requests.length, now_s, parts };
}
