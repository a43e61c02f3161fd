"""Spans on their way out: a bounded line, the SDK's thread that sends them in batches, and what is said of failures."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from router.adapters.metrics.families import counter_family

LOGGER = logging.getLogger("warmroute.tracing")

TRACES_PATH = "/v1/traces"

LINE_SPANS = 8_192
"""Some 16 MB, and the spans of two thousand requests: what a collector may be behind."""

BATCH_SPANS = 64
"""Encoding holds the interpreter's lock for some 40 µs a span: a batch of these delays a stream by less than 3 ms, the
SDK's 512 would by the 5 ms that Python grants a thread, again and again."""

BATCH_MS = 1_000
"""How long a span may wait for others to be sent with."""

FLUSH_S = 0.4
"""What sending the last spans may take when the router stops: less than all that is closed then has together."""


class _FirstWords(logging.Filter):
    """Lets nothing of what is logged pass, and keeps what each thread said first: the cause of its failure."""

    def __init__(self) -> None:
        super().__init__()
        self._said = threading.local()

    @property
    def text(self) -> str:
        """What this thread said first; empty where it said nothing."""
        return getattr(self._said, "text", "")

    def forget(self) -> None:
        """Begin again, for this thread."""
        self._said.text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        self._said.text = self.text or record.getMessage()
        return False


_WORDS = _FirstWords()
logging.getLogger(OTLPSpanExporter.__module__).addFilter(_WORDS)  # it says the same of every batch, and every attempt
logging.getLogger("urllib3").setLevel(logging.WARNING)  # with --log-level debug it would tell of every batch


class SpanExport(Collector):
    """Takes finished spans; never waits, never raises. Its counts are for Prometheus."""

    def __init__(self, endpoint: str) -> None:
        """`endpoint`: the collector's base URL, or where it takes traces. Call it in the process that serves."""
        url = endpoint if endpoint.endswith(TRACES_PATH) else endpoint.rstrip("/") + TRACES_PATH
        self._sender = _Sender(OTLPSpanExporter(url), url)
        self._processor = BatchSpanProcessor(
            self._sender,
            max_queue_size=LINE_SPANS,  # never full: `add` sees to it, and drops whole requests, not their oldest spans
            schedule_delay_millis=BATCH_MS,
            max_export_batch_size=BATCH_SPANS,
        )
        self._given_spans = 0
        self._dropped_spans = 0
        self._closed = False

    @property
    def waiting_spans(self) -> int:
        """Spans that no batch has been made of."""
        return self._given_spans - self._sender.taken_spans

    def add(self, spans: Sequence[ReadableSpan]) -> None:
        """Put the spans of one request into the line; drop them all where there is no room."""
        if self._closed or self.waiting_spans + len(spans) > LINE_SPANS:
            self._dropped_spans += len(spans)
            return
        self._given_spans += len(spans)
        for span in spans:
            self._processor.on_end(span)

    async def close(self) -> None:
        """Send what is in the line, as far as FLUSH_S goes."""
        if self._closed:
            return
        self._closed = True
        loop, sent = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._processor.shutdown()  # type: ignore[no-untyped-call]
            with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
                loop.call_soon_threadsafe(sent.set)

        # A thread of its own: the loop's executor would be waited for at the end of the process, without limit.
        threading.Thread(target=shut_down, name="warmroute-last-spans", daemon=True).start()
        try:
            async with asyncio.timeout(FLUSH_S):
                await sent.wait()
        except TimeoutError:
            unsent = self._given_spans - self._sender.exported_spans - self._sender.failed_spans
            LOGGER.warning("tracing: the last %d spans could not be sent within %g s", unsent, FLUSH_S)
        self._sender.shutdown()

    def collect(self) -> Iterator[Metric]:
        """Make Prometheus' objects of the counts."""
        counts = {
            "exported": self._sender.exported_spans,
            "failed": self._sender.failed_spans,
            "dropped": self._dropped_spans,
        }
        yield counter_family(
            "warmroute_trace_spans",
            "Spans of traced requests, by what became of them.",
            ("result",),
            (((result,), count) for result, count in counts.items()),
        )


class _Sender(SpanExporter):
    """Sends batches, in the SDK's thread. Says once that the collector is lost, and once that it is back."""

    def __init__(self, exporter: SpanExporter, url: str) -> None:
        self._exporter = exporter
        self._url = url
        self._well = True
        self._closed = False
        self.taken_spans = 0
        self.exported_spans = 0
        self.failed_spans = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch. It takes 10 s at the most, or what OTEL_EXPORTER_OTLP_TIMEOUT says."""
        self.taken_spans += len(spans)
        _WORDS.forget()
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.exported_spans += len(spans)
            self._took()
        else:
            self.failed_spans += len(spans)
            self._refused()
        return result

    def _took(self) -> None:
        if not self._well:
            self._well = True
            LOGGER.warning("tracing: %s takes spans again", self._url)

    def _refused(self) -> None:
        if self._well and not self._closed:
            self._well = False
            LOGGER.warning("tracing: %s takes no spans, which are dropped: %s", self._url, _WORDS.text)

    def shutdown(self) -> None:
        """Give up what is being tried again."""
        if not self._closed:
            self._closed = True
            self._exporter.shutdown()
