"""What a prompt's tokens cost: at first sight, in the conversation's next turn, and for streams meanwhile.

Conversations of Python's standard library, through a model's own files (--model) or a tokenizer trained on the same
text, and ChatML. "First" is a conversation that nobody has seen, "next turn" one that has grown by a question of 500
bytes, both in a thread as in the router. "Stall" is how late an event loop wakes meanwhile that sleeps half a
millisecond at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

from router.adapters.tokenizer.model_files import Model, load_model
from router.adapters.tokenizer.models import tokenised
from router.adapters.tokenizer.service import SWITCH_INTERVAL_S

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
MESSAGE_BYTES = 2_000
QUESTION_BYTES = 500
TICK_S = 0.0005


def corpus(size: int) -> str:
    """Return so much of the standard library."""
    found, files = "", iter(sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")))
    while len(found) < size:
        found += next(files).read_text(encoding="utf-8", errors="replace")
    return found


def trained(folder: Path, text: str) -> Path:
    """Train a byte-level tokenizer and write it as a model's directory."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = [AddedToken(token, special=True, normalized=False) for token in ("<|im_start|>", "<|im_end|>")]
    made.train_from_iterator([text], trainers.BpeTrainer(vocab_size=8_000, special_tokens=special, show_progress=False))
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    return folder


def conversation(text: str, size: int, number: int, turn: int) -> bytes:
    """Return the body of a conversation's turn; no two numbers share a message."""
    start = number * 977
    cuts = range(start, start + size, MESSAGE_BYTES)
    texts = [f"{number} {text[at : at + MESSAGE_BYTES]}" for at in cuts]
    messages = [{"role": ("user", "assistant")[n % 2], "content": one} for n, one in enumerate(texts)]
    messages += [{"role": "user", "content": f"{number} {n} {text[-QUESTION_BYTES:]}"} for n in range(turn)]
    return json.dumps({"model": "m", "messages": messages}).encode()


async def timed(pool: ThreadPoolExecutor, work: Callable[[], object]) -> tuple[float, float]:
    """Run in a thread; return the seconds it took, and how late the loop ran at the most meanwhile."""
    began_s, late_s = time.perf_counter(), 0.0
    done = asyncio.get_running_loop().run_in_executor(pool, work)
    while not done.done():
        before_s = time.perf_counter()
        await asyncio.sleep(TICK_S)
        late_s = max(late_s, time.perf_counter() - before_s - TICK_S)
    await done
    return time.perf_counter() - began_s, late_s


async def measured(model: Model, text: str, size: int, rounds: int) -> list[tuple[float, ...]]:
    rows: list[tuple[float, ...]] = []
    pool = ThreadPoolExecutor(1)
    for number in range(rounds):
        bodies = [conversation(text, size, number, turn) for turn in (1, 2)]
        turns = [await timed(pool, partial(tokenised, model, None, "chat", body)) for body in bodies]
        rows.append((len(tokenised(model, None, "chat", bodies[0])), len(bodies[0]), *turns[0], *turns[1]))
    pool.shutdown()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a model's directory (default: a tokenizer trained here)")
    parser.add_argument("--kilobytes", type=int, nargs="+", default=[2, 8, 40, 400])
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    text = corpus(2_000_000)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with tempfile.TemporaryDirectory() as folder:
        model = load_model(arguments.model or trained(Path(folder), text))
    table = Table(title="Milliseconds a prompt: median over the rounds")
    for name in ("tokens", "body kB", "first", "stall", "next turn", "stall"):
        table.add_column(name, justify="right")
    for kilobytes in arguments.kilobytes:
        rows = asyncio.run(measured(model, text, kilobytes * 1000, arguments.rounds))
        tokens, size, *times = (statistics.median(column) for column in zip(*rows, strict=True))
        table.add_row(f"{tokens:,.0f}", f"{size / 1000:.0f}", *(f"{one * 1e3:.2f}" for one in times))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
