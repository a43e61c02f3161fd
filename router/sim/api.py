"""The inference routes: from a body to a `Generation`."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from router.sim import answers_pooling as pooled
from router.sim.answers import ChatForm, CompletionForm
from router.sim.answers_messages import MessagesForm
from router.sim.answers_pooling import PoolingForm
from router.sim.bodies import Body, as_integer, check_generation, check_tools, check_types, need, read_json
from router.sim.errors import Refusal, bad_value, unknown_model
from router.sim.faults import Taken
from router.sim.forms import Choice, Form, Label, UsageWish
from router.sim.generation import Generation, Work
from router.sim.plan import Output, Wish, seed_of
from router.sim.prompts import (
    anthropic_chat,
    chat_prompt,
    completion_prompts,
    embedding_prompts,
    limited,
    pair_prompts,
    rerank_prompts,
    scope_salt,
)
from router.sim.ranks import RANK_HEADER, Rank
from router.sim.record import Arrival
from router.sim.reply import Reply
from router.sim.state import ReplicaState, random_id
from router.sim.structured import demanded_text
from router.sim.types import Named

_COMPLETION_TOKENS = 16
"""OpenAI's default for max_tokens of a completion, which vLLM keeps."""
_AUDIO_BYTES_PER_S = 16_000
"""Compressed speech, 128 kbit/s; only the answer's duration depends on it."""
_AUDIO_TOKENS = 1_500
"""Encoder positions of 30 s of audio, as in Whisper."""


@dataclass(slots=True)
class Call:
    """A request that is being answered."""

    arrival: Arrival
    reply: Reply
    taken: Taken

    def ident(self, prefix: str, body: Body) -> str:
        """Return the answer's id: the client's header, its body, or a random one."""
        given = self.arrival.header(b"x-request-id")
        if given is not None:
            return prefix + given.decode("latin-1")
        return prefix + str(body.get("request_id") or random_id())


def label_of(state: ReplicaState, body: Body, ident: str) -> tuple[Label, int]:
    """Return the answer's label and the scope of its prefix.

    Raises:
        Refusal: no such model.
    """
    name = body.get("model")
    adapter = name if name in state.adapters else None
    if name and adapter is None and name not in state.options.models:
        raise unknown_model(name, ", ".join(state.options.models))
    # Aliases of the base model share its cache, and answers name the first alias.
    label = Label(ident, int(time.time()), adapter or state.options.models[0])
    return label, scope_salt(adapter, body.get("cache_salt"))


def wish_of(state: ReplicaState, body: Body, prompt: array[int], default_tokens: int | None = None) -> Wish:
    """Return what a body says about the length of the answer.

    Raises:
        Refusal: the prompt leaves no room.
    """
    room = state.max_model_len - len(prompt)
    asked = body.get("max_completion_tokens") or body.get("max_tokens") or body.get("max_output_tokens")
    limit = min(room, as_integer(asked, default_tokens if default_tokens is not None else room))
    if limit < 1:
        raise bad_value(f"max_tokens must be at least 1, got {limit}.", "max_tokens", limit)
    stop = body.get("stop") or body.get("stop_sequences") or ()
    return Wish(
        limit_tokens=limit,
        min_tokens=as_integer(body.get("min_tokens"), 0),
        ignore_eos=bool(body.get("ignore_eos")),
        stop=(stop,) if isinstance(stop, str) else tuple(text for text in stop if isinstance(text, str)),
    )


def chat(state: ReplicaState, call: Call) -> Generation:
    """/v1/chat/completions."""
    body = read_json(call.arrival)
    check_types(body)
    check_generation(body, state.max_model_len)
    check_tools(body)
    need(body, "messages")
    label, salt = label_of(state, body, call.ident("chatcmpl-", body))
    prompt = limited(chat_prompt(state.tokenizer, body), state.max_model_len)
    wish = wish_of(state, body, prompt)
    outputs = [chat_output(state, body, prompt, wish, index) for index in range(as_integer(body.get("n"), 1))]
    usage = UsageWish.of(body.get("stream_options"), forced=state.options.force_include_usage)
    form = ChatForm(label, usage, token_ids=bool(body.get("return_token_ids")))
    rows = [(prompt, output) for output in outputs]
    work = _work(state, call, form, rows, salt, wish.limit_tokens, _rank_asked_for(state, call))
    work.streaming, work.shared_prompt = bool(body.get("stream")), True
    return Generation(state, work, call.reply).start()


def chat_output(state: ReplicaState, body: Body, prompt: array[int], wish: Wish, index: int = 0) -> Output:
    """Return the answer to a chat: a tool call where one is demanded, else text."""
    choice, tools = body.get("tool_choice"), body.get("tools") or []
    functions: list[dict[str, Any]] = [
        tool["function"] for tool in tools if isinstance(tool, dict) and isinstance(tool.get("function"), dict)
    ]
    if choice == "required" and functions:
        return state.planner.tool_call(prompt, functions[0], wish, named=False)
    if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        name = choice["function"].get("name")
        for function in functions:
            if function.get("name") == name:
                return state.planner.tool_call(prompt, function, wish, named=True)
        text = "The tool specified in `tool_choice` does not match any of the specified `tools`"
        raise bad_value(text, "tool_choice")
    return text_output(state, body, prompt, wish, index)


def text_output(state: ReplicaState, body: Body, prompt: array[int], wish: Wish, index: int = 0) -> Output:
    """Return an answer in words, or in the form that the body demands."""
    demanded = demanded_text(body, seed_of(prompt, index))
    return state.planner.text(prompt, wish, index) if demanded is None else state.planner.fixed(demanded, wish)


def completions(state: ReplicaState, call: Call) -> Generation:
    """/v1/completions."""
    body = read_json(call.arrival)
    check_types(body)
    check_generation(body, state.max_model_len)
    label, salt = label_of(state, body, call.ident("cmpl-", body))
    prompts = completion_prompts(state.tokenizer, body)
    rows: list[tuple[array[int], Output]] = []
    limit_tokens = 1
    for prompt in prompts:
        wish = wish_of(state, body, limited(prompt, state.max_model_len), _COMPLETION_TOKENS)
        limit_tokens = wish.limit_tokens
        copies = range(as_integer(body.get("n"), 1))
        rows.extend((prompt, text_output(state, body, prompt, wish, copy)) for copy in copies)
    usage = UsageWish.of(body.get("stream_options"), forced=state.options.force_include_usage)
    form = CompletionForm(label, usage, token_ids=bool(body.get("return_token_ids")))
    work = _work(state, call, form, rows, salt, limit_tokens, _rank_asked_for(state, call))
    work.streaming, work.shared_prompt = bool(body.get("stream")), len(prompts) == 1
    return Generation(state, work, call.reply).start()


def messages(state: ReplicaState, call: Call) -> Generation:
    """/v1/messages."""
    body = read_json(call.arrival)
    check_types(body)
    need(body, "messages", "max_tokens")
    check_generation(body | {"stream_options": None}, state.max_model_len)
    label, salt = label_of(state, body, call.ident("chatcmpl-", body))
    turned = _chat_of_anthropic(body)
    check_tools(turned)
    prompt = limited(chat_prompt(state.tokenizer, turned), state.max_model_len)
    wish = wish_of(state, body, prompt)
    output = chat_output(state, turned, prompt, wish)
    form, rank = MessagesForm(label), _rank_asked_for(state, call)
    work = _work(state, call, form, [(prompt, output)], salt, wish.limit_tokens, rank)
    work.streaming, work.anthropic = bool(body.get("stream")), True
    return Generation(state, work, call.reply).start()


def count_tokens(state: ReplicaState, call: Call) -> None:
    """/v1/messages/count_tokens."""
    body = read_json(call.arrival)
    need(body, "messages")
    label_of(state, body, "")
    tokens = len(chat_prompt(state.tokenizer, _chat_of_anthropic(body)))
    call.reply.sized(200, b'{"input_tokens":%d,"context_management":{"original_input_tokens":%d}}' % (tokens, tokens))


def _chat_of_anthropic(body: Body) -> Body:
    turned_messages, tools = anthropic_chat(body)
    choice = body.get("tool_choice")
    turned: Body = {"messages": turned_messages, "tools": tools}
    output = body.get("output_config")
    if isinstance(output, dict) and isinstance(wanted := output.get("format"), dict):
        turned["response_format"] = {"type": wanted.get("type"), "json_schema": {"schema": wanted.get("schema")}}
    if isinstance(choice, dict):
        named = {"type": "function", "function": {"name": choice.get("name")}}
        choices: dict[Any, Any] = {"any": "required", "tool": named, "none": "none"}
        turned["tool_choice"] = choices.get(choice.get("type"), "auto")
    return turned


def embeddings(state: ReplicaState, call: Call) -> Generation:
    """/v1/embeddings."""
    return _pooling(state, call, "embd-", embedding_prompts, pooled.embeddings)


def pooling(state: ReplicaState, call: Call) -> Generation:
    """/pooling."""
    return _pooling(state, call, "pooling-", embedding_prompts, lambda label, body: pooled.pooling(label))


def classify(state: ReplicaState, call: Call) -> Generation:
    """/classify."""
    return _pooling(state, call, "classify-", embedding_prompts, lambda label, body: pooled.classify(label))


def score(state: ReplicaState, call: Call) -> Generation:
    """/score, /v1/score."""
    return _pooling(state, call, "score-", pair_prompts, lambda label, body: pooled.score(label))


def rerank(state: ReplicaState, call: Call) -> Generation:
    """/rerank, /v1/rerank, /v2/rerank."""

    def form(label: Label, body: Body) -> PoolingForm:
        given = body["documents"]
        documents = given if isinstance(given, list) else [given]
        return pooled.rerank(label, documents, as_integer(body.get("top_n"), 0))

    return _pooling(state, call, "score-", rerank_prompts, form)


def transcriptions(state: ReplicaState, call: Call) -> Generation:
    """/v1/audio/transcriptions and translations: any body will do."""
    body = call.arrival.body
    label, salt = label_of(state, {}, call.ident("transcribe-", {}))
    first = sum(body[:65_536])
    prompt = array("I", (first + len(body) + position for position in range(_AUDIO_TOKENS)))
    output = state.planner.text(prompt, wish_of(state, {}, prompt))
    form = pooled.transcription(-(-len(body) // _AUDIO_BYTES_PER_S))
    rank = state.ranks.least_loaded()
    work = _work(state, call, form, [(prompt, output)], salt, len(output.pieces), rank)
    return Generation(state, work, call.reply).start()


def _pooling(
    state: ReplicaState,
    call: Call,
    prefix: str,
    prompts_of: Callable[[Any, Body], list[array[int]]],
    form_of: Callable[[Label, Body], PoolingForm],
) -> Generation:
    body = read_json(call.arrival)
    check_types(body)
    label, salt = label_of(state, body, call.ident(prefix, body))
    prompts = [limited(prompt, state.max_model_len) for prompt in prompts_of(state.tokenizer, body)]
    nothing = Output(array("I"), [], "stop")
    rows = [(prompt, nothing) for prompt in prompts]
    work = _work(state, call, form_of(label, body), rows, salt, 1, state.ranks.least_loaded())
    return Generation(state, work, call.reply).start()


def _rank_asked_for(state: ReplicaState, call: Call) -> Rank:
    """Return the rank for a chat, completion or message: no other route looks at the header."""
    return state.ranks.asked_for(call.arrival.header(RANK_HEADER))


def _work(
    state: ReplicaState,
    call: Call,
    form: Form,
    rows: Sequence[tuple[array[int], Output]],
    salt: int,
    limit_tokens: int,
    rank: Rank,
) -> Work:
    choices = [Choice(index, prompt, output) for index, (prompt, output) in enumerate(rows)]
    details = state.options.prompt_tokens_details
    named = _named(state, call) if state.publishers else None
    return Work(
        state.next_id(), rank, form, choices, salt, named, details=details, limit_tokens=limit_tokens, taken=call.taken
    )


def _named(state: ReplicaState, call: Call) -> Named:
    """Return what cache events say of a request. The body's session goes before the header's."""
    try:
        body = read_json(call.arrival)
    except Refusal:  # a form
        body = {}
    session, salt, model = body.get("session_id"), body.get("cache_salt"), body.get("model")
    if session is None:
        header = call.arrival.header(b"x-session-id")
        session = None if header is None else header.decode("latin-1")
    return Named(session, model if model in state.adapters else None, salt)
