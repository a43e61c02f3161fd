"""/v1/responses: creating, continuing, fetching and cancelling; what is stored is known to this replica alone."""

from __future__ import annotations

from typing import Any

import msgspec

from router.sim.answers_responses import ResponsesForm, response_record
from router.sim.api import Call, chat_output, label_of, wish_of
from router.sim.bodies import Body, check_generation, check_types, need, read_json
from router.sim.errors import Refusal, unknown_response
from router.sim.forms import Choice
from router.sim.generation import Generation, Nowhere, Work
from router.sim.prompts import chat_prompt, from_item, limited, responses_chat
from router.sim.state import ReplicaState, StoredResponse, random_id

_PREFIX = "/v1/responses/"
_CANCEL = "/cancel"


def create(state: ReplicaState, call: Call) -> Generation | None:
    """POST /v1/responses."""
    body = read_json(call.arrival)
    check_types(body)
    need(body, "input")
    check_generation(body, state.max_model_len)
    # Unlike the other routes, this one takes no id from the X-Request-Id header.
    label, salt = label_of(state, body, str(body.get("request_id") or f"resp_{random_id()}"))
    messages, tools = responses_chat(body, _history(state, body))
    prompt = limited(chat_prompt(state.tokenizer, {"messages": messages, "tools": tools}), state.max_model_len)
    wish = wish_of(state, body, prompt)
    asked = {"tools": tools, "tool_choice": _choice(body), "response_format": _format(body)}
    output = chat_output(state, asked, prompt, wish)
    stored = StoredResponse(response_record(label, body, wish.limit_tokens), messages)
    keeps = state.options.response_store and body.get("store", True) is not False

    def settled(record: dict[str, Any]) -> None:
        stored.generation = None
        if keeps:
            state.responses[label.ident] = stored

    form, rank = ResponsesForm(stored.record, settled), state.ranks.least_loaded()
    work = Work(state.next_id(), rank, form, [Choice(0, prompt, output)], salt=salt)
    work.limit_tokens, work.streaming, work.taken = wish.limit_tokens, bool(body.get("stream")), call.taken
    if body.get("background"):
        _in_background(state, call, work, stored, keeps)
        return None
    return Generation(state, work, call.reply).start()


def _in_background(state: ReplicaState, call: Call, work: Work, stored: StoredResponse, keeps: bool) -> None:
    if not keeps:
        text = "This vLLM engine does not support `store=True` and therefore does not support the background mode."
        raise Refusal(text, kind="invalid_request_error", param="background")
    stored.record["status"] = "queued"
    stored.generation = Generation(state, work, Nowhere())
    work.streaming = False
    stored.generation.start()
    state.responses[stored.record["id"]] = stored
    call.reply.sized(200, msgspec.json.encode(stored.record))


def fetch(state: ReplicaState, call: Call) -> None:
    """GET /v1/responses/{id}."""
    stored = _stored(state, call.arrival.path.removeprefix(_PREFIX))
    call.reply.sized(200, msgspec.json.encode(stored.record))


def cancel(state: ReplicaState, call: Call) -> None:
    """POST /v1/responses/{id}/cancel."""
    stored = _stored(state, call.arrival.path.removeprefix(_PREFIX).removesuffix(_CANCEL))
    if stored.generation is None:
        text = "Cannot cancel a synchronous response."
        raise Refusal(text, kind="invalid_request_error", param="response_id")
    stored.generation.lost()
    stored.generation = None
    stored.record["status"] = "cancelled"
    call.reply.sized(200, msgspec.json.encode(stored.record))


def _history(state: ReplicaState, body: Body) -> list[Any]:
    previous = body.get("previous_response_id")
    if previous is None:
        return []
    stored = _stored(state, str(previous))
    return [*stored.messages, *(from_item(item) for item in stored.record["output"])]


def _stored(state: ReplicaState, response_id: str) -> StoredResponse:
    stored = state.responses.get(response_id)
    if stored is None:
        raise unknown_response(response_id)
    return stored


def _choice(body: Body) -> Any:
    """Return the tool choice as a chat would say it."""
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return choice


def _format(body: Body) -> Any:
    """Return the answer's format as a chat would say it."""
    text = body.get("text")
    wanted = text.get("format") if isinstance(text, dict) else None
    if isinstance(wanted, dict) and wanted.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": {"schema": wanted.get("schema")}}
    return wanted
