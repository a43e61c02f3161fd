"""All that a replay showed, as the table's sections, as a page, as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from router.app.replay.asked import Asked
from router.app.replay.jobs import Outcome
from router.app.replay.workloads import Ordered
from router.replay.plan import Plan
from router.replay.report.figures import Figures
from router.replay.report.page import Page, Section
from router.replay.report.plots import run_plots, sweep_plots
from router.replay.report.rows import rows
from router.replay.sweep import Sweep, answer, fleet_text


@dataclass(frozen=True, slots=True)
class Found:
    """All that a replay showed."""

    asked: Asked
    ordered: Ordered
    policies: list[str]
    sweep: Sweep | None
    outcomes: list[Outcome]
    """By value of the sweep, and within it by policy."""

    @property
    def by_size(self) -> list[list[Outcome]]:
        """One list for each size of the fleet, by policy."""
        step = len(self.policies)
        return [self.outcomes[start : start + step] for start in range(0, len(self.outcomes), step)]

    @property
    def by_policy(self) -> dict[str, list[Figures]]:
        """Figures of each size."""
        return {
            policy: [outcomes[number].figures for outcomes in self.by_size]
            for number, policy in enumerate(self.policies)
        }

    @property
    def answers(self) -> list[str]:
        """A sentence for each policy that was swept."""
        if self.sweep is None:
            return []
        return [answer(self.sweep, points, self.asked.target_ttft_p95_s) for points in self.by_policy.values()]

    @property
    def notes(self) -> list[str]:
        """What a reader of the figures has to know of the traffic."""
        too_long = max(outcome.too_long for outcome in self.outcomes)
        left_out = [f"{too_long:,} requests fit no cache of this size and were left out"] * bool(too_long)
        touched = [_touched(outcome) for outcome in self.outcomes if outcome.touches]
        return [*self.ordered.notes, *left_out, *touched]

    @property
    def sections(self) -> list[Section]:
        """A table for each size of the fleet."""
        return [
            Section(_caption(outcomes[0]), rows([outcome.figures for outcome in outcomes])) for outcomes in self.by_size
        ]

    @property
    def page(self) -> Page:
        """The page: plots of a sweep, or of the runs over the one fleet."""
        if self.sweep is not None:
            plots = sweep_plots(self.sweep, self.by_policy, self.asked.target_ttft_p95_s)
        else:
            plots = run_plots([outcome.curves for outcome in self.outcomes])
        title = f"Replay of {self.ordered.workload.name}"
        return Page(title, self.policies, self.sections, plots, self.answers, self.notes, self._settings)

    @property
    def as_json(self) -> dict[str, Any]:
        """Everything as plain values; null for what there is not."""
        return {
            "workload": self.ordered.workload.name,
            "settings": self._settings,
            "runs": [_run_json(outcome) for outcome in self.outcomes],
            "answers": self.answers,
            "notes": self.notes,
        }

    @property
    def _settings(self) -> dict[str, str]:
        plan = self.outcomes[0].plan
        engine = plan.engine
        return {
            "traffic": self.ordered.workload.name,
            "counted": f"{plan.minutes - plan.warm_up_minutes:g} minutes after {plan.warm_up_minutes:g} of warm-up",
            "speed": f"{self.asked.rate_scale:g} times the recorded one",
            "seed": f"{plan.seed}",
            "prefill": f"{engine.prefill_tokens_per_s:,.0f} tokens/s, divided by 1 + "
            f"{engine.prefill_slowdown_per_seq:g} for each running sequence",
            "decode": f"{engine.decode_s * 1000:g} ms a token + {engine.decode_per_seq_s * 1000:g} ms "
            "for each running sequence",
            "blocks": f"{self.ordered.workload.block_tokens} tokens",
            "routers": f"{plan.routers}, {plan.sync_ms:g} ms behind each other",
        }


def _fleet(plan: Plan) -> str:
    speeds = f", speeds {':'.join(f'{speed:g}' for speed in plan.speeds)}" if plan.speeds else ""
    return fleet_text(plan.replicas, plan.engine.kv_tokens) + speeds


def _touched(outcome: Outcome) -> str:
    told = outcome.touches
    return (
        f"{outcome.plan.policy}: {told['touches']:,.0f} touches; seconds of prefill: {told['touch_saved_s']:.1f} "
        f"saved by {told['touch_hits']:,.0f} hits, {told['touch_lost_s']:.1f} lost by {told['touch_misses']:,.0f} "
        f"misses, {told['touch_spent_s']:.1f} spent"
    )


def _caption(outcome: Outcome) -> str:
    return (
        f"{_fleet(outcome.plan)}; one pooled cache would hit {outcome.pooled_ratio * 100:.1f} %, "
        f"one that never evicts {outcome.ceiling_ratio * 100:.1f} %"
    )


def _run_json(outcome: Outcome) -> dict[str, Any]:
    figures = {name: _finite(figure) for name, figure in asdict(outcome.figures).items()}
    bounds = {"pooled_ratio": outcome.pooled_ratio, "ceiling_ratio": outcome.ceiling_ratio}
    return {**figures, **bounds, **outcome.touches, "run_s": outcome.run_s, "router_s": outcome.router_s}


def _finite(figure: Any) -> Any:
    return None if isinstance(figure, float) and not isfinite(figure) else figure
