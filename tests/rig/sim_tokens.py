"""The simulated engine's own tokenizer as the router's: every prompt's tokens are known at once."""

from __future__ import annotations

import json
from collections.abc import Callable

from router.core.token_ids import TokenIds, token_scope
from router.core.types import RoutingRequest
from router.sim.prompts import chat_prompt
from router.sim.tokenizer import Tokenizer


class SimTokens:
    """`ports.Tokenizer` for chats."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer()

    def ask(self, request: RoutingRequest, body: bytes, then: Callable[[TokenIds | None], None]) -> None:
        fields = json.loads(body)
        then(TokenIds(chat_prompt(self._tokenizer, fields), token_scope(None, fields.get("cache_salt"))))

    def reported(self, request: RoutingRequest, prompt_tokens: int) -> None:
        """Nothing is to be learnt."""

    def close(self) -> None:
        """Nothing is open."""
