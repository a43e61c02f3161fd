/** The first answer: how much of the prompts came from cache, and what that saved. */

import { figure, h, meter, setFigure, setMeter, setText, show } from '../dom.js';
import { amount, count, knownRatio, percent, seconds, unit } from '../format.js';

const UNSAID =
  'No answer says what was cached: start vLLM with --enable-prompt-tokens-details, and for streams with ' +
  '--enable-force-include-usage unless clients ask for usage.';

/** @param {HTMLElement} section @param {HTMLElement} saved */
export function createHeadline(section, saved) {
  const big = Object.assign(figure('hit_ratio', 'big'), { id: 'hit-ratio' });
  const predicted = figure('predicted_ratio');
  const bar = meter();
  const cached = figure('engine_cached_tokens');
  const reported = figure('reported_prompt_tokens');
  const [hits, queries] = [figure('counter_hits_tokens'), figure('counter_queries_tokens')];
  const who = h('span', {});
  const [ofReported, ofQueries, ofPrompt, ofRequests] = Array.from({ length: 4 }, () => h('span', {}));
  const ofAnswers = h('p', { class: 'note' }, cached, ' of ', reported, ofReported, ' reported on');
  const ofCounters = h('p', { class: 'note', hidden: true }, hits, ' of ', queries, ofQueries, ', by /metrics');
  const prompt = figure('prompt_tokens');
  const requests = figure('requests');
  const failed = figure('failed');
  const silent = h('p', { class: 'note', hidden: true });
  section.append(
    h('p', { class: 'headline' }, big, who),
    bar,
    h('p', { class: 'beside' }, h('b', {}, predicted), ' predicted by the router'),
    ofAnswers,
    ofCounters,
    h('p', { class: 'note' }, prompt, ofPrompt, ' in ', requests, ofRequests, ', ', failed, ' failed'),
    silent,
  );
  const saving = createSaving(saved);
  return {
    /** @param {import('../state.js').State} state */
    update(state) {
      const all = state.overview.windows[state.window];
      const counted = all.hit_ratio === null && all.counter_ratio !== null;
      const known = knownRatio(all);
      setFigure(big, known, percent);
      setText(who, `of prompt tokens were cached, ${counted ? 'by the engines’ own counters' : 'as the engines report'}`);
      show(ofAnswers, !counted);
      show(ofCounters, counted);
      setFigure(hits, all.counter_hits_tokens, amount);
      setFigure(queries, all.counter_queries_tokens, amount);
      setFigure(predicted, all.predicted_ratio, percent);
      setMeter(bar, known, all.predicted_ratio);
      setFigure(cached, all.engine_cached_tokens, amount);
      setFigure(reported, all.reported_prompt_tokens, amount);
      setFigure(prompt, all.prompt_tokens, amount);
      setFigure(requests, all.requests, count);
      setText(ofReported, unit(all.reported_prompt_tokens, ' token'));
      setText(ofQueries, unit(all.counter_queries_tokens, ' token'));
      setText(ofPrompt, unit(all.prompt_tokens, ' prompt token'));
      setText(ofRequests, unit(all.requests, ' request'));
      setFigure(failed, all.failed, count);
      const mute = all.requests > 0 && all.hit_ratio === null;
      setText(silent, mute ? UNSAID : '');
      show(silent, mute);
      saving(all);
    },
  };
}

/** @param {HTMLElement} section */
function createSaving(section) {
  const prefill = figure('saved_prefill_s', 'large');
  const ttft = figure('saved_ttft_s', 'large');
  const warm = figure('ttft_warm_p50_s');
  const cold = figure('ttft_cold_p50_s');
  section.append(
    h('p', { class: 'saving' }, prefill, h('span', {}, 'of prefill not computed again')),
    h('p', { class: 'saving' }, ttft, h('span', {}, 'sooner the first token of a warm turn, on average')),
    h('p', { class: 'note' }, 'Median time to first token: ', warm, ' warm, ', cold, ' cold'),
  );
  return (/** @type {import('../types.js').Totals & import('../types.js').FleetWindow} */ all) => {
    setFigure(prefill, all.saved_prefill_s, seconds);
    setFigure(ttft, all.saved_ttft_s, seconds);
    setFigure(warm, all.ttft.warm.p50_s, seconds);
    setFigure(cold, all.ttft.cold.p50_s, seconds);
  };
}
