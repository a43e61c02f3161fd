"""`vllm bench serve` as load: no request fails, and prompts that begin alike find what is cached.

Needs vLLM's own code, so it is run by `make test-vllm`; the replicas are simulated.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.clients.fleet import Fleet
from tests.contract.vllm_server import SETTINGS, make_tiny_model, vllm_python

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

BENCH = (
    "from vllm.benchmarks.serve import add_cli_args, main\n"
    "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
    "parser = FlexibleArgumentParser()\n"
    "add_cli_args(parser)\n"
    "main(parser.parse_args())\n"
)
"""What the command `vllm` does, which does not start on the CPU build."""

REQUESTS, PREFIXES = 60, 6
OPTIONS = {
    "--backend": "openai-chat",
    "--endpoint": "/v1/chat/completions",
    "--dataset-name": "prefix_repetition",
    "--prefix-repetition-prefix-len": 1500,
    "--prefix-repetition-suffix-len": 200,
    "--prefix-repetition-num-prefixes": PREFIXES,
    "--prefix-repetition-output-len": 20,
    "--num-prompts": REQUESTS,
    "--request-rate": 20,
}


async def test_prompts_that_begin_alike(simulated: Fleet, tmp_path: Path) -> None:
    python = vllm_python()
    model = await asyncio.to_thread(make_tiny_model, python, tmp_path / "model")
    options = OPTIONS | {"--base-url": simulated.router.url, "--model": simulated.model, "--tokenizer": model}
    process = await asyncio.create_subprocess_exec(
        python, "-c", BENCH, *(str(word) for option in options.items() for word in option),
        env=os.environ | SETTINGS, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    said = " ".join(output.decode().split())
    assert process.returncode == 0, said
    assert f"Successful requests: {REQUESTS} Failed requests: 0" in said
    chats = [one for one in simulated.router.records.finished if one.path == "/v1/chat/completions"]
    warm = [one for one in chats if one.decision is not None and one.decision.reason.value in ("shared", "warm")]
    assert len(warm) >= REQUESTS - 3 * PREFIXES, "each replica computes each prefix once at the most"
