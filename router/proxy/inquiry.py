"""What is asked beside the data plane before a request is routed, all at the same time."""

from __future__ import annotations

from collections.abc import Callable

from router.core.landmarks import Question
from router.core.token_ids import TokenIds
from router.core.types import RoutingRequest
from router.ports import Store, Tokenizer

Then = Callable[[RoutingRequest, bool], None]


class Inquiry:
    """One request's questions: to the store what other routers know, to the tokenizer which tokens its prompt is."""

    __slots__ = ("_open", "_request", "_taught", "_then")

    def __init__(self, request: RoutingRequest, then: Then) -> None:
        """`then` gets the request, with its tokens where they are known, and whether the store taught something."""
        self._request = request
        self._then = then
        self._taught = False
        self._open = 1
        """Answers that are to come, and 1 until all have been asked for."""

    def ask(self, store: Store | None, question: Question | None, tokenizer: Tokenizer | None, body: bytes) -> None:
        """Ask both; where there is nobody to ask, `then` is called at once."""
        if store is not None and question is not None:
            self._open += 1
            store.ask(question, self._recalled)
        if tokenizer is not None:
            self._open += 1
            tokenizer.ask(self._request, body, self._tokenised)
        self._answered()

    def _recalled(self, taught: bool) -> None:
        self._taught = taught
        self._answered()

    def _tokenised(self, tokens: TokenIds | None) -> None:
        if tokens is not None:
            self._request = self._request._replace(tokens=tokens)
        self._answered()

    def _answered(self) -> None:
        self._open -= 1
        if not self._open:
            self._then(self._request, self._taught)
