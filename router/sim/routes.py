"""Which path is answered by what: vLLM's routes, the small ones included, and its answers to what it does not know."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from http import HTTPStatus

import msgspec

from router.sim import api, api_responses, exposition
from router.sim.api import Call, label_of
from router.sim.bodies import Body, need, read_json
from router.sim.connection import Ongoing
from router.sim.errors import (
    METHOD_DETAIL,
    NOT_FOUND_DETAIL,
    SHUTDOWN,
    UNAUTHORIZED,
    Refusal,
    refusal_body,
    status_error,
)
from router.sim.faults import Fault, FaultKind
from router.sim.prompts import chat_prompt
from router.sim.record import Header
from router.sim.state import ReplicaState, random_id

Handler = Callable[[ReplicaState, Call], Ongoing | None]

_GUARDED = ("/v1", "/v2", "/inference")
_ANTHROPIC = "/v1/messages"
_RESPONSE = "/v1/responses/{response_id}"
_VARY: Header = (b"vary", b"Origin")


def answer(state: ReplicaState, call: Call) -> Ongoing | None:
    """Answer a request: first what its faults say, else what vLLM says."""
    path = call.arrival.path
    if state.options.api_key is not None and path.startswith(_GUARDED) and not _authorized(state, call):
        call.reply.sized(401, UNAUTHORIZED, headers=())
        return None
    if _answer_fault(call, path):
        return None
    handler = _find(state, call, path)
    if handler is None:
        return None
    try:
        return handler(state, call)
    except Refusal as refusal:
        refused = refusal
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        refused = Refusal(str(error))  # vLLM, too, takes these for the client's fault.
    call.reply.sized(refused.status, refusal_body(refused, anthropic=path.startswith(_ANTHROPIC)))
    return None


def handler_label(path: str) -> str:
    """Return the `handler` label of the HTTP metrics: a known route, or "none"."""
    if path.startswith("/v1/responses/"):
        return _RESPONSE + ("/cancel" if path.endswith("/cancel") else "")
    return path if path in _ROUTES else "none"


def _authorized(state: ReplicaState, call: Call) -> bool:
    scheme, _, key = (call.arrival.header(b"authorization") or b"").partition(b" ")
    expected = (state.options.api_key or "").encode()
    return scheme.lower() == b"bearer" and hmac.compare_digest(key, expected)


def _answer_fault(call: Call, path: str) -> bool:
    fault = call.taken.get(FaultKind.STATUS)
    if fault is not None:
        _answer_status(call, fault)
    elif (shutdown := call.taken.get(FaultKind.SHUTDOWN_500)) is not None:
        refusal = Refusal(shutdown.message or SHUTDOWN, status=500, kind="InternalServerError")
        call.reply.sized(500, refusal_body(refusal, anthropic=path.startswith(_ANTHROPIC)))
    else:
        return False
    return True


def _answer_status(call: Call, fault: Fault) -> None:
    headers = [_VARY]
    if fault.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % fault.retry_after_s))
    call.reply.sized(fault.status, status_error(fault.status, fault.message), headers=headers)


def _find(state: ReplicaState, call: Call, path: str) -> Handler | None:
    """Return the handler, or answer 404 or 405."""
    methods = _ROUTES.get(path) or (_DEV_ROUTES.get(path) if state.options.dev_mode else None)
    if methods is None and path.startswith("/v1/responses/"):
        cancels = path.endswith("/cancel")
        methods = {"POST": api_responses.cancel} if cancels else {"GET": api_responses.fetch}
    if methods is None:
        call.reply.sized(404, NOT_FOUND_DETAIL)
        return None
    handler = methods.get(call.arrival.method)
    if handler is None:
        allowed = ", ".join(methods).encode()
        call.reply.sized(405, METHOD_DETAIL, headers=((b"allow", allowed), _VARY))
    return handler


def _empty(state: ReplicaState, call: Call) -> None:
    call.reply.sized(200, b"")


def _version(state: ReplicaState, call: Call) -> None:
    _json(call, {"version": state.options.version})


def _load(state: ReplicaState, call: Call) -> None:
    _json(call, {"server_load": state.load})


def _event_sources(state: ReplicaState, call: Call) -> None:
    _json(call, {str(rank): publisher.config() for rank, publisher in enumerate(state.publishers)})


def _models(state: ReplicaState, call: Call) -> None:
    base = state.options.models[0]
    names = [(name, None) for name in state.options.models] + [(name, base) for name in state.adapters]
    _json(call, {"object": "list", "data": [_model_card(state, name, parent) for name, parent in names]})


def _model_card(state: ReplicaState, name: str, parent: str | None) -> Body:
    now = int(time.time())
    permission = {
        "id": f"modelperm-{random_id()}",
        "object": "model_permission",
        "created": now,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": name,
        "object": "model",
        "created": now,
        "owned_by": "vllm",
        "root": f"/models/{parent or state.options.models[0]}",
        "parent": parent,
        "max_model_len": None if parent else state.max_model_len,
        "permission": [permission],
    }


def _tokenize(state: ReplicaState, call: Call) -> None:
    body = read_json(call.arrival)
    label_of(state, body, "")
    if "messages" in body:
        ids = chat_prompt(state.tokenizer, body)
    else:
        need(body, "prompt")
        ids = state.tokenizer.encode(str(body["prompt"]))
    strings = [f"<{token}>" for token in ids] if body.get("return_token_strs") else None
    _json(
        call,
        {"count": len(ids), "max_model_len": state.max_model_len, "tokens": list(ids), "token_strs": strings},
    )


def _detokenize(state: ReplicaState, call: Call) -> None:
    """Ids are hashes, so their text cannot be found again: each gets a word of its own."""
    body = read_json(call.arrival)
    need(body, "tokens")
    _json(call, {"prompt": " ".join(f"<{token}>" for token in body["tokens"])})


def _metrics(state: ReplicaState, call: Call) -> None:
    taken = call.taken
    if FaultKind.METRICS_MISSING in taken:
        call.reply.sized(404, NOT_FOUND_DETAIL)
        return
    text = exposition.GARBAGE if FaultKind.METRICS_GARBAGE in taken else state.metrics()
    if FaultKind.METRICS_PARTIAL in taken:
        text = text[: text.index(b"vllm:kv_cache_usage_perc{") + 30] if b"vllm:kv_cache_usage_perc{" in text else b""
    call.reply.sized(200, text, exposition.CONTENT_TYPE)


def _reset_prefix_cache(state: ReplicaState, call: Call) -> None:
    _json(call, {"success": state.reset_prefix_caches()})


def _sleep(state: ReplicaState, call: Call) -> None:
    query = call.arrival.target.partition("?")[2]
    state.sleep(2 if "level=2" in query else 1)
    _json(call, {"status": "sleeping", "level": state.sleep_level})


def _wake(state: ReplicaState, call: Call) -> None:
    state.go_on()
    _json(call, {"status": "awake", "tags": None})


def _pause(state: ReplicaState, call: Call) -> None:
    state.pause()
    _json(call, {"status": "paused"})


def _resume(state: ReplicaState, call: Call) -> None:
    state.go_on()
    _json(call, {"status": "resumed"})


def _is_sleeping(state: ReplicaState, call: Call) -> None:
    _json(call, {"is_sleeping": state.sleep_level > 0})


def _is_paused(state: ReplicaState, call: Call) -> None:
    _json(call, {"is_paused": state.paused})


def _json(call: Call, body: Body) -> None:
    call.reply.sized(HTTPStatus.OK, msgspec.json.encode(body))


_ROUTES: dict[str, dict[str, Handler]] = {
    "/health": {"GET": _empty},
    "/ping": {"GET": _empty, "POST": _empty},
    "/version": {"GET": _version},
    "/load": {"GET": _load},
    "/kv_event_sources": {"GET": _event_sources},
    "/metrics": {"GET": _metrics, "HEAD": _metrics},
    "/v1/models": {"GET": _models},
    "/tokenize": {"POST": _tokenize},
    "/detokenize": {"POST": _detokenize},
    "/v1/chat/completions": {"POST": api.chat},
    "/v1/completions": {"POST": api.completions},
    "/v1/messages": {"POST": api.messages},
    "/v1/messages/count_tokens": {"POST": api.count_tokens},
    "/v1/responses": {"POST": api_responses.create},
    "/v1/embeddings": {"POST": api.embeddings},
    "/pooling": {"POST": api.pooling},
    "/classify": {"POST": api.classify},
    "/score": {"POST": api.score},
    "/v1/score": {"POST": api.score},
    "/rerank": {"POST": api.rerank},
    "/v1/rerank": {"POST": api.rerank},
    "/v2/rerank": {"POST": api.rerank},
    "/v1/audio/transcriptions": {"POST": api.transcriptions},
    "/v1/audio/translations": {"POST": api.transcriptions},
}

_DEV_ROUTES: dict[str, dict[str, Handler]] = {
    "/reset_prefix_cache": {"POST": _reset_prefix_cache},
    "/sleep": {"POST": _sleep},
    "/wake_up": {"POST": _wake},
    "/is_sleeping": {"GET": _is_sleeping},
    "/pause": {"POST": _pause},
    "/resume": {"POST": _resume},
    "/is_paused": {"GET": _is_paused},
}
"""With VLLM_SERVER_DEV_MODE=1 only."""
