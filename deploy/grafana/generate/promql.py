"""PromQL as the dashboards use it: everything filtered by their variables."""

from __future__ import annotations

ROUTER = 'job=~"$job", instance=~"$router"'
"""What a metric of the router as a whole can be filtered by."""
REPLICA = ROUTER + ', replica=~"$replica"'
MODEL = REPLICA + ', model=~"$model"'

SPANS = (("5m", "5 min"), ("1h", "1 h"), ("24h", "24 h"))
"""What the first row shows, as the router's own dashboard does."""


def gauge(metric: str, filters: str, by: str, how: str = "sum") -> str:
    """Return a gauge's values, put together over what is not in `by`."""
    return f"{how} by ({by}) ({metric}{{{filters}}})" if by else f"{how}({metric}{{{filters}}})"


def rate(metric: str, filters: str, by: str = "", span: str = "$__rate_interval") -> str:
    """Return how much a counter grows a second."""
    return _summed("rate", metric, filters, by, span)


def increase(metric: str, filters: str, by: str = "", span: str = "$__range") -> str:
    """Return by how much a counter has grown."""
    return _summed("increase", metric, filters, by, span)


def _summed(how: str, metric: str, filters: str, by: str, span: str) -> str:
    inner = f"{how}({metric}{{{filters}}}[{span}])"
    return f"sum by ({by}) ({inner})" if by else f"sum({inner})"


def ratio(part: str, whole: str) -> str:
    """Return a share; nothing, not NaN, where there is nothing to have a share of."""
    return f"{part} / ({whole} > 0)"


def quantile(share: float, metric: str, filters: str, by: str = "", span: str = "$__rate_interval") -> str:
    """Return a quantile of a histogram."""
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, {rate(metric + '_bucket', filters, labels, span)})"
