"""A deterministic stand-in for a model's tokenizer and chat template, at about 4.5 bytes a token on English prose.

Text is cut into pieces by a regular expression and a piece's id is its hash, so there is no vocabulary to load. Every
message is tokenised by itself between marker tokens: a chat's next prompt starts with the last prompt, its generation
prompt included, and the answer's tokens, as with a well-behaved chat template. Prefix caching needs just that.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import OrderedDict
from random import Random
from typing import Any

from xxhash import xxh3_64_intdigest

MEDIA_TOKENS = 576
"""Tokens of an image or any other non-text part: a 336-pixel image in 14-pixel patches, as in LLaVA-1.5."""

_TEXT_IDS = 1 << 31
"""Text has ids below this and markers above, so that no text can forge a marker."""
_START, _END, _CALL = _TEXT_IDS, _TEXT_IDS + 1, _TEXT_IDS + 2
_FIRST_ROLE = _TEXT_IDS + 1024
"""Role names are hashed into the ids from here on; the three markers stay clear of them."""

MESSAGE_MARKER_TOKENS = 3
"""A start marker and a role before each message, an end marker behind it."""
GENERATION_PROMPT_TOKENS = 2
"""A start marker and the assistant's role."""

_CACHE_BYTES = 64 << 20
_CACHED_FROM_CHARS = 64
"""Shorter texts are tokenised faster than they are looked up and accounted for."""
_KNOWN_PIECES = 1 << 17
"""Piece ids kept at hand; natural text stays far below, and random text must not fill the memory."""

_PIECE = re.compile(r"\s?[0-9A-Za-z_]{1,8}|\s?\w|\s?[^\w\s]|\s{1,8}")

_WORDS = """
about above after again all also always and any are area around as ask at away back base be because been before begin
behind best better between big block both bring build busy but buy by call can car carry case cause change check city
clear close cold come could count country course cut data day deep detail did do does done door down draw drive early
earth east easy eat effect end engine enough even every exact eye face fact fall far fast few field fill final find fire
first five follow food for force form four free from front full game gave get give go good great green ground group grow
had half hand hard has have he head hear heat help her here high him his hold home hot hour house how idea if in into is
it just keep kind king knew know land large last late lead learn leave left less let life light like line list little
live long look lot love low made make man many map mark may mean measure memory message might mind minute miss more most
move much must name near need never new next night no north not note now number of off often old on once one only open
or order other our out over own page paper part pass people perhaps person picture piece place plain plan play point
press problem pull put question quick rain read ready real record red rest right river road room round rule run same say
school sea second see seem sentence serve set several shape she ship short should show side simple since size slow small
snow so some song soon sound south space special spell stand star start state stay step still stop story street strong
study such sun sure surface table take talk teach tell test than that the their them then there these they thing think
this those three through time to together token too top toward town travel tree true try turn two under unit until up us
use usual very voice wait walk want warm was watch water way we week well went were west what wheel when where which
while white who whole why will wind with without wonder word work world would write year yes yet you young your
"""
"""None is longer than the eight letters that one piece can hold."""
_PIECES = [f" {word}" for word in _WORDS.split()] + [".", ","] * 24
"""What generated text is made of: each is one token wherever it stands behind another."""


def answer_pieces(seed: int, tokens: int) -> list[str]:
    """Return `tokens` pieces of text, one token each; joined, they tokenise to exactly these tokens again."""
    pieces = Random(seed).choices(_PIECES, k=max(0, tokens))
    if pieces:
        pieces[0] = pieces[0].lstrip()
    return pieces


def answer_text(seed: int, tokens: int) -> str:
    """Return text of exactly `tokens` tokens, the same for the same seed, without space at its ends."""
    return "".join(answer_pieces(seed, tokens))


class _Vocabulary(dict[str, int]):
    """Piece to id, filled as pieces turn up."""

    def __missing__(self, piece: str) -> int:
        if len(self) >= _KNOWN_PIECES:
            self.clear()
        token = self[piece] = xxh3_64_intdigest(piece.encode("utf-8", "surrogatepass")) % _TEXT_IDS
        return token


class Tokenizer:
    """Text and chats to token ids, with the ids of recent long texts kept in at most `cache_bytes` of memory.

    The arrays it returns for text are shared with that cache: read them, never change them.
    """

    def __init__(self, cache_bytes: int = _CACHE_BYTES) -> None:
        self._vocabulary = _Vocabulary()
        self._known: OrderedDict[str, array[int]] = OrderedDict()
        self._known_bytes = 0
        self._cache_bytes = cache_bytes

    def encode(self, text: str) -> array[int]:
        """Return the token ids of plain text, below 2^31."""
        if len(text) < _CACHED_FROM_CHARS:
            return self._tokenise(text)
        ids = self._known.get(text)
        if ids is not None:
            self._known.move_to_end(text)
            return ids
        ids = self._tokenise(text)
        self._remember(text, ids)
        return ids

    def render_chat(self, messages: Any, tools: Any = None, add_generation_prompt: bool = True) -> array[int]:
        """Return the token ids of a chat as a chat template renders it: tools first, then each message.

        Takes what a JSON parser can return for `messages` and `tools`, however odd, and never raises.
        """
        ids = array("I")
        if tools:
            ids.extend((_START, _role_id("tools")))
            ids.extend(self.encode(_as_json(tools)))
            ids.append(_END)
        for message in messages if isinstance(messages, list | tuple) else [messages]:
            role = message.get("role") if isinstance(message, dict) else None
            ids.extend((_START, _role_id(role if isinstance(role, str) else "user")))
            ids.extend(self.message_body(message))
            ids.append(_END)
        if add_generation_prompt:
            ids.extend((_START, _role_id("assistant")))
        return ids

    def message_body(self, message: Any) -> array[int]:
        """Return the token ids of one message between its markers.

        For an assistant message these are the output tokens whose KV the next turn's prompt can reuse.
        """
        if not isinstance(message, dict):
            return self._content(message)
        ids = self._content(message.get("content"))
        calls = message.get("tool_calls") or message.get("function_call")
        if not calls:
            return ids
        ids = array("I", ids)
        for call in calls if isinstance(calls, list) else [calls]:
            ids.append(_CALL)
            ids.extend(self.encode(_call_text(call)))
        return ids

    def _content(self, content: Any) -> array[int]:
        if content is None:
            return array("I")
        if isinstance(content, list | tuple):
            ids = array("I")
            for part in content:
                ids.extend(self._part(part))
            return ids
        return self.encode(content if isinstance(content, str) else _as_json(content))

    def _part(self, part: Any) -> array[int]:
        if isinstance(part, dict):
            text = part.get("text")
            if not isinstance(text, str):
                return _media_ids(part)
            return self.encode(text)
        return self.encode(part if isinstance(part, str) else _as_json(part))

    def _tokenise(self, text: str) -> array[int]:
        return array("I", map(self._vocabulary.__getitem__, _PIECE.findall(text)))

    def _remember(self, text: str, ids: array[int]) -> None:
        self._known[text] = ids
        self._known_bytes += _bytes_of(text, ids)
        while self._known_bytes > self._cache_bytes:
            self._known_bytes -= _bytes_of(*self._known.popitem(last=False))


def _bytes_of(text: str, ids: array[int]) -> int:
    return len(text) + ids.itemsize * len(ids)


def _role_id(role: str) -> int:
    return _FIRST_ROLE + xxh3_64_intdigest(role.encode("utf-8", "surrogatepass")) % (_TEXT_IDS - 1024)


def _media_ids(part: dict[Any, Any]) -> array[int]:
    """Ids that depend on the whole part, since data URLs share their leading bytes."""
    digest = xxh3_64_intdigest(_as_json(part).encode("utf-8", "surrogatepass"))
    return array("I", [(digest + index) % _TEXT_IDS for index in range(MEDIA_TOKENS)])


def _call_text(call: Any) -> str:
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return _as_json(call)
    name, arguments = function.get("name"), function.get("arguments")
    return f"{name} {arguments if isinstance(arguments, str) else _as_json(arguments)}"


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), skipkeys=True, default=repr)
    except (ValueError, RecursionError):
        return type(value).__name__
