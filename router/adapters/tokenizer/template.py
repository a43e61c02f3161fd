"""The model's chat template, rendered as vLLM and the library below it do."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from datetime import datetime
from functools import cached_property
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.ext import loopcontrols as LoopControls
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from router.adapters.tokenizer.chat import Chat, Message
from router.adapters.tokenizer.content_format import content_format
from router.adapters.tokenizer.conversation import conversation, without_developer
from router.adapters.tokenizer.trouble import Unrendered

_OPEN_END = "CONTINUE_FINAL_MESSAGE_TAG "
"""Put behind the message that the answer goes on from: the rendered text is cut there."""

_PROBE: list[Message] = [{"role": role, "content": "t"} for role in ("system", "user", "system", "user")]


class _Generation(Extension):
    """`{% generation %}` marks what training looks at; for a prompt it is its content and nothing more."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_content"), [], [], body).set_lineno(line)

    def _content(self, caller: Callable[[], str]) -> str:
        return caller()


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)  # noqa: DTZ005 - vLLM gives templates its local time, too


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON without the escapes for HTML that Jinja's own filter makes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, LoopControls])
    made.filters["tojson"] = _tojson
    made.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return made


class ChatTemplate:
    """One template. It may be rendered in several threads at once."""

    def __init__(self, source: str, special_tokens: dict[str, str]) -> None:
        """`special_tokens`: bos_token and its like, by name. Raises jinja2.TemplateSyntaxError."""
        environment = _environment()
        self._template = environment.from_string(source)
        self._special_tokens = special_tokens
        self._names_content = "content" in source
        self._knows_developer = '"developer"' in source or "'developer'" in source
        self.content_format = content_format(environment.parse(source))

    @cached_property
    def wants_system_first(self) -> bool:
        """Whether it refuses system messages further down: vLLM then merges those of /v1/messages into the first."""
        try:
            self._template.render(messages=_PROBE, add_generation_prompt=False)
        except jinja2.TemplateError:
            return True
        return False

    def render(self, chat: Chat) -> str:
        """Return the prompt's text. Raises Unrendered, or whatever the template raises."""
        messages = conversation(chat.messages, self.content_format)
        if not messages:
            raise Unrendered("no messages")
        if not self._knows_developer:
            messages = without_developer(messages)
        if not chat.continue_final_message:
            return self._rendered(messages, chat)
        return self._cut_open(messages, chat)

    def _rendered(self, messages: list[Message], chat: Chat) -> str:
        given: dict[str, Any] = self._special_tokens | {"documents": None} | chat.arguments
        given |= {"messages": messages, "tools": chat.tools, "add_generation_prompt": chat.add_generation_prompt}
        return self._template.render(given)

    def _cut_open(self, messages: list[Message], chat: Chat) -> str:
        """Render without what closes the last message."""
        messages = deepcopy(messages)
        last = messages[-1]
        if not self._names_content or chat.add_generation_prompt or not last["content"]:
            raise Unrendered("nothing to go on from")
        if isinstance(last["content"], str):
            text, last["content"] = last["content"], last["content"] + _OPEN_END
        else:
            part = last["content"][-1]
            text, part["text"] = part["text"], part["text"] + _OPEN_END
        rendered = self._rendered(messages, chat)
        mark = _OPEN_END.strip()
        if text.strip() not in rendered or mark not in rendered:
            raise Unrendered("the template leaves out what the answer goes on from")
        at = rendered.rindex(mark)
        kept = rendered[:at]
        return kept if rendered.startswith(_OPEN_END, at) else kept.rstrip()
