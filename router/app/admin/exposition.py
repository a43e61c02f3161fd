"""Metrics for Prometheus."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry
from prometheus_client.process_collector import ProcessCollector

from router.adapters.metrics.page import text_of
from router.adapters.redis_store.metrics import StoreCollector
from router.app.admin.limits import LimitsCollector
from router.app.admin.tasks import TasksCollector
from router.app.house import House
from router.app.process.reloads import ReloadCollector


def add_metrics_route(app: FastAPI, house: House) -> None:
    """Add /metrics to an application."""
    registry = _registry(house)

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Metrics in Prometheus' text format."""
        return Response(await text_of(registry), media_type=CONTENT_TYPE_LATEST)


def _registry(house: House) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(house.metrics)
    registry.register(house.queue_metrics)
    registry.register(LimitsCollector(house.plane, lambda: house.state_kept))
    registry.register(ReloadCollector(house.reloads, house.gate))
    registry.register(house.recording.counts)
    if house.warming is not None:
        registry.register(house.warming.counts)
    if house.toucher is not None:
        registry.register(house.toucher.counts)
    if house.tracer is not None:
        registry.register(house.tracer.export)
    if house.tokenizer is not None:
        registry.register(house.tokenizer.counts)
    if house.kv_events is not None:
        registry.register(house.kv_events.collector)
    if house.store is not None:
        registry.register(StoreCollector(house.store, house.fleet))
    registry.register(TasksCollector(asyncio.all_tasks))
    ProcessCollector(registry=registry)
    return registry
