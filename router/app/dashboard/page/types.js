/**
 * What the admin API answers, as the page reads it. Only types: nothing of this runs.
 *
 * @typedef {'5m' | '1h' | '24h'} WindowName
 *
 * @typedef {object} Totals  Of one window; null: not known.
 * @property {number} requests
 * @property {number} failed
 * @property {number} prompt_tokens
 * @property {number} predicted_cached_tokens
 * @property {number} reported_prompt_tokens
 * @property {number} engine_cached_tokens
 * @property {number | null} hit_ratio
 * @property {number} counter_queries_tokens
 * @property {number} counter_hits_tokens
 * @property {number | null} counter_ratio
 * @property {number | null} predicted_ratio
 * @property {number} lost_tokens
 * @property {number} saved_prefill_s
 *
 * @typedef {{count: number, p50_s: number | null, p95_s: number | null}} Quantiles
 * @typedef {{warm: Quantiles, cold: Quantiles}} WarmCold
 * @typedef {{cause: string, turns: number, tokens: number, prefill_s: number}} Loss
 * @typedef {{up_to_tokens: number | null, warm: Quantiles, cold: Quantiles}} LengthRow
 * @typedef {{bounds_s: number[], in_time: number[], too_late: number[]}} Returns
 *
 * @typedef {object} FleetWindow
 * @property {Loss[]} causes
 * @property {Record<string, number>} reasons
 * @property {Record<string, number>} errors
 * @property {WarmCold} ttft
 * @property {LengthRow[]} ttft_by_length
 * @property {Record<string, Quantiles>} phases
 * @property {Returns} returns
 * @property {number | null} saved_ttft_s
 *
 * @typedef {Record<WindowName, Totals>} Windows
 *
 * @typedef {object} Replica
 * @property {string} id
 * @property {string | null} name
 * @property {string} url
 * @property {number | null} rank
 * @property {string} state
 * @property {string | null} cause
 * @property {boolean | null} asleep
 * @property {string[]} models
 * @property {number} pressure_ratio
 * @property {{uncached_tokens: number, streams: number}} ledger
 * @property {{uncached_tokens: number, streams: number}} peer_ledger
 * @property {number} prefill_tokens_per_s
 * @property {{blocks: number, bytes: number, fill_ratio: number | null, error_ratio: number | null}} mirror
 * @property {number | null} eviction_age_s
 * @property {Windows} windows
 * @property {Record<string, number | boolean | null>} engine
 *
 * @typedef {object} Overview
 * @property {number} now_s
 * @property {string} version
 * @property {string} policy
 * @property {number} uptime_s
 * @property {Record<WindowName, Totals & FleetWindow>} windows
 * @property {Record<string, Windows>} models
 * @property {Replica[]} replicas
 * @property {{requests: Record<string, number>, bytes: number}} queue
 * @property {{file: string, written: number, dropped: number, trouble: string | null} | null} recording
 * @property {{id: string, self: boolean, heard_s: number, ledgers: Record<string, Ledger>}[]} routers
 * @property {{address: string, state: string, cause: string | null, backlog: number, dropped: Record<string, number>}
 *   | null} redis
 *
 * @typedef {{uncached_tokens: number, pending: number, streams: number}} Ledger
 *
 * @typedef {object} History  One number a step in each column.
 * @property {WindowName} window
 * @property {number} step_s
 * @property {number} start_s
 * @property {(number | null)[]} requests
 * @property {(number | null)[]} prompt_tokens
 * @property {(number | null)[]} predicted_cached_tokens
 * @property {(number | null)[]} reported_prompt_tokens
 * @property {(number | null)[]} engine_cached_tokens
 * @property {(number | null)[]} counter_queries_tokens
 * @property {(number | null)[]} counter_hits_tokens
 * @property {Record<string, (number | null)[]>} reasons
 * @property {Record<string, (number | null)[]>} causes
 * @property {Record<string, (number | null)[]>} ttft
 * @property {(number | null)[]} queued_p95_s
 *
 * @typedef {{replica: string, total_s: number, queue_s: number, own_s: number, balance_s: number,
 *   evicted_s: number, streams_s: number, matched_blocks: number, matched_tokens: number}} Score
 *
 * @typedef {{cause: string, message: number | null, role: string, kept_tokens: number}} Change
 *
 * @typedef {object} Decided  A row of /api/decisions.
 * @property {string} request_id
 * @property {string} model
 * @property {string} path
 * @property {number} status
 * @property {number} at_s
 * @property {number | null} ttft_s
 * @property {number} total_s
 * @property {{prompt_tokens: number | null, cached_tokens: number | null}} usage
 * @property {{replica: string, reason: string, home: string | null, prompt_tokens: number, matched_tokens: number,
 *   scores: Score[]}} decision
 * @property {{session: string, number: number, lost_tokens: number, cause: string | null} | null} turn
 *
 * @typedef {object} Turn  Of a session, or a row of /api/misses.
 * @property {string} [session]
 * @property {string} [model]
 * @property {number} number
 * @property {number} at_s
 * @property {string} request_id
 * @property {number} status
 * @property {string} replica
 * @property {string} reason
 * @property {string | null} home
 * @property {number} prompt_tokens
 * @property {number} matched_tokens
 * @property {number | null} cached_tokens
 * @property {number} history_tokens
 * @property {number} lost_tokens
 * @property {string | null} cause
 * @property {Change | null} change
 * @property {number | null} idle_s
 * @property {number | null} ttft_s
 * @property {number} total_s
 * @property {Score[]} scores
 */

export {};
