"""The dashboard "Warmroute: hits": how many prompt tokens came from cache, what that saved, what is lost and why."""

from __future__ import annotations

from deploy.grafana.generate.board import Row, board
from deploy.grafana.generate.panels import GREEN, RED, YELLOW, Json, Query, bars, lines, stat
from deploy.grafana.generate.promql import MODEL, REPLICA, ROUTER, SPANS, gauge, increase, quantile, rate, ratio

CACHED, REPORTED = "warmroute_engine_cached_tokens_total", "warmroute_reported_prompt_tokens_total"
PREDICTED, PROMPT = "warmroute_predicted_cached_tokens_total", "warmroute_prompt_tokens_total"
LOST = "warmroute_missed_tokens_total"
TTFT = "warmroute_ttft_seconds"
RETURNS = "warmroute_returns_seconds"

GOOD_HITS = ((None, RED), (0.3, YELLOW), (0.6, GREEN))
"""Chats of several turns reach 0.7; half of that is what round robin gets."""
GOOD_LOSS = ((None, GREEN), (0.05, YELLOW), (0.15, RED))


def _spans(expr: str) -> list[Query]:
    """Ask for the last 5 minutes, hour and day; `SPAN` stands for it."""
    return [Query(expr.replace("SPAN", span), name) for span, name in SPANS]


def hits() -> Json:
    """Return the dashboard."""
    text = "How many prompt tokens came from cache, what that saved, and what is being lost and why."
    return board("warmroute-hits", "Warmroute: hits", text, [_now(), _ratios(), _losses(), _times(), _belief()])


def _now() -> Row:
    reported = ratio(increase(CACHED, MODEL, span="SPAN"), increase(REPORTED, MODEL, span="SPAN"))
    predicted = ratio(increase(PREDICTED, MODEL, span="SPAN"), increase(PROMPT, MODEL, span="SPAN"))
    lost = ratio(increase(LOST, ROUTER, span="SPAN"), increase(PROMPT, ROUTER, span="SPAN"))
    saved = increase("warmroute_saved_prefill_seconds_total", REPLICA, span="SPAN")
    faster = " - ".join(quantile(0.5, TTFT, f'{MODEL}, cache="{cache}"', span="SPAN") for cache in ("cold", "warm"))
    return Row(
        "Now",
        [
            (5, stat("Hit ratio, reported", "Prompt tokens that engines found in their caches, of the prompts for "
                     "which they say so.", _spans(reported), "percentunit", GOOD_HITS)),
            (5, stat("Hit ratio, predicted", "Prompt tokens that the chosen replicas were believed to hold.",
                     _spans(predicted), "percentunit", GOOD_HITS)),
            (5, stat("Prefill saved", "Seconds of engines' time that cached tokens saved.", _spans(saved), "s")),
            (5, stat("TTFT saved by a hit", "Median time to the first token of cold streams less that of warm ones.",
                     _spans(faster), "s")),
            (4, stat("Prompt tokens lost", "Could have been cached and were computed again, of all prompt tokens of "
                     "all models.", _spans(lost), "percentunit", GOOD_LOSS)),
        ],
        height=5,
    )  # fmt: skip


def _ratios() -> Row:
    def reported(by: str) -> str:
        return ratio(rate(CACHED, MODEL, by), rate(REPORTED, MODEL, by))

    fleet = [
        Query(reported(""), "reported"),
        Query(ratio(rate(PREDICTED, MODEL), rate(PROMPT, MODEL)), "predicted"),
    ]
    tokens = [
        Query(rate(CACHED, MODEL), "cached"),
        Query(f"{rate(PROMPT, MODEL)} - {rate(CACHED, MODEL)}", "computed"),
    ]
    return Row(
        "Hits",
        [
            (12, lines("Hit ratio", "Reported by the engines, and what the router predicted.", fleet, "percentunit",
                       top=1)),
            (12, lines("Prompt tokens", "By where they came from. Where an engine does not report, all count as "
                       "computed.", tokens, "short", stacked=True)),
            (12, lines("Hit ratio by model", "Reported by the engines.", [Query(reported("model"), "{{model}}")],
                       "percentunit", top=1)),
            (12, lines("Hit ratio by replica", "Reported by the engines.", [Query(reported("replica"), "{{replica}}")],
                       "percentunit", top=1)),
        ],
    )  # fmt: skip


def _losses() -> Row:
    ranked = f"sort_desc({increase(LOST, ROUTER, 'cause')} > 0)"
    turns = [
        Query(rate("warmroute_first_turns_total", ROUTER), "first turn of a session"),
        Query(rate(RETURNS + "_count", ROUTER, "returned"), "returned {{returned}}"),
    ]
    ages = [
        Query(quantile(0.5, RETURNS, ROUTER), "idle time, median"),
        Query(quantile(0.9, RETURNS, ROUTER), "idle time, p90"),
        Query(gauge("warmroute_eviction_age_seconds", REPLICA, "replica", "min"), "eviction age of {{replica}}"),
    ]
    idle = increase(RETURNS + "_bucket", f'{ROUTER}, returned="%s"', "le")
    return Row(
        "What is lost, and why",
        [
            (8, bars("Lost tokens, ranked", "Prompt tokens lost in the time range, by cause.",
                     Query(ranked, "{{cause}}"), "short")),
            (8, lines("Lost tokens by cause", "Prompt tokens a second that could have been cached and were computed "
                      "again.",
                      [Query(rate(LOST, ROUTER, "cause"), "{{cause}}")], "short", stacked=True)),
            (8, lines("Turns that missed", "Turns a second that lost some of their history, by the cause of the "
                      "largest part.", [Query(rate("warmroute_missed_turns_total", ROUTER, "cause"), "{{cause}}")],
                      "ops", stacked=True)),
            (12, lines("Eviction age", "How long what a replica evicts next was not used, against how long sessions "
                       "are idle between turns. Those that are idle for longer come too late. No line: nothing need "
                       "be evicted.", ages, "s")),
            (12, lines("Turns", "A second: of new sessions, and of known ones by whether their blocks still lived.",
                       turns, "ops", stacked=True)),
            (12, bars("Idle time of returning turns, in time", "Turns in the time range, by how long their session was "
                      "idle (seconds, up to).", Query(idle % "in-time", "{{le}}", buckets=True), "short")),
            (12, bars("Idle time of returning turns, too late", "The same, of those whose history had been evicted.",
                      Query(idle % "too-late", "{{le}}", buckets=True), "short")),
        ],
    )  # fmt: skip


def _times() -> Row:
    by_length = "warmroute_ttft_by_prompt_length_seconds"
    both = [
        Query(quantile(share, TTFT, MODEL, "cache"), f"{{{{cache}}}} {name}")
        for share, name in ((0.5, "p50"), (0.95, "p95"))
    ]

    def lengths(cache: str) -> list[Query]:
        filters = f'{ROUTER}, cache="{cache}"'
        return [Query(quantile(0.95, by_length, filters, "prompt_tokens"), "{{prompt_tokens}} tokens")]

    saved = [Query(rate("warmroute_saved_prefill_seconds_total", REPLICA, "replica"), "{{replica}}")]
    return Row(
        "What a hit is worth",
        [
            (12, lines("TTFT, warm and cold", "Streams: from the whole request to the first byte of content. Warm: "
                       "cached tokens were expected.", both, "s")),
            (12, lines("Prefill saved by replica", "Seconds of prefill saved a second: above 1, caching does the work "
                       "of another replica.", saved, "short", stacked=True)),
            (12, lines("TTFT of warm streams by prompt length (p95)", "Prompt tokens, up to.", lengths("warm"), "s")),
            (12, lines("TTFT of cold streams by prompt length (p95)", "Prompt tokens, up to.", lengths("cold"), "s")),
        ],
    )  # fmt: skip


def _belief() -> Row:
    error = ratio(rate("warmroute_mirror_error_tokens_total", REPLICA, "replica"), rate(REPORTED, REPLICA, "replica"))
    return Row(
        "Is what is believed right?",
        [
            (8, lines("Mirror error", "Difference between predicted and reported cached tokens, of all prompt tokens "
                      "of a replica. Above 0.15 for long: see the alert WarmrouteMirrorInaccurate.",
                      [Query(error, "{{replica}}")], "percentunit", steps=((None, GREEN), (0.15, RED)))),
            (8, lines("Mirror fill", "What a replica is believed to hold, of the size of its cache.",
                      [Query(gauge("warmroute_mirror_fill_ratio", REPLICA, "replica", "max"), "{{replica}}")],
                      "percentunit")),
            (8, lines("Decisions by reason", "A second.",
                      [Query(rate("warmroute_decisions_total", REPLICA, "reason"), "{{reason}}")], "ops",
                      stacked=True)),
        ],
    )  # fmt: skip
