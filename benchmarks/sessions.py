"""Chats made of filler, for benchmarks in which only their shape counts: a system prompt, then turn after turn."""

import json

from benchmarks.load import post

# Each above one block of 512 bytes, so that every turn has a key of its own.
SYSTEM_BYTES, USER_BYTES = 1_200, 600
ANSWER = "hello"
SYSTEM_PROMPTS = 24  # as in the chat workload


def text(name: str, size_bytes: int) -> str:
    return (f"{name} " + "x y z w " * (size_bytes // 8))[:size_bytes]


class Session:
    """One chat. Two of the same name say the same, word for word; `system` names what others may share."""

    def __init__(self, name: str, system: str, header: bool = False) -> None:
        self.name, self.turns = name, 0
        self.headers = f"x-session-id: {name}\r\n" if header else ""
        self.messages = [{"role": "system", "content": text(system, SYSTEM_BYTES)}]

    def next_request(self, streamed_tokens: int = 0) -> bytes:
        """The request of the next turn, which takes for granted that the last one was answered; 0: not streamed."""
        if self.turns:
            self.messages.append({"role": "assistant", "content": ANSWER})
        self.messages.append({"role": "user", "content": text(f"{self.name} {self.turns}", USER_BYTES)})
        self.turns += 1
        body = {"model": "m", "messages": self.messages, "stream": bool(streamed_tokens)}
        if streamed_tokens:
            body |= {"max_tokens": streamed_tokens, "stream_options": {"include_usage": True}}
        return post(json.dumps(body).encode(), headers=self.headers)


def sharing(number: int, kind: str, header: bool = False) -> Session:
    """A session that shares its system prompt with every 24th other one."""
    return Session(f"{kind} {number}", f"system {number % SYSTEM_PROMPTS}", header)
