"""Start and stop a real vLLM server (its CPU build) that serves the tiny model."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

PYTHON_VARIABLE = "VLLM_PYTHON"
MODEL_NAME = "tiny"
READY_LINE = "Application startup complete"
START_S = 300.0
"""Three processes import torch, which takes half a minute on an idle machine."""
STOP_S = 20.0

SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; the number of blocks then cuts it down
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the default pins every server to the same core
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class VllmCache:
    """Size of the server's KV cache. The CPU build takes block sizes in multiples of 32 only."""

    blocks: int = 320
    block_tokens: int = 32
    max_model_len: int = 8_192


def vllm_python() -> str:
    """Return the interpreter that has vLLM, or fail the test that asked for it."""
    python = os.environ.get(PYTHON_VARIABLE)
    if not python:
        pytest.fail(f"{PYTHON_VARIABLE} is not set: it names the python of an environment with vLLM", pytrace=False)
    if shutil.which(python) is None:
        pytest.fail(f"{PYTHON_VARIABLE}={python} is not an executable", pytrace=False)
    return python


def make_tiny_model(python: str, out: Path) -> Path:
    """Write the tiny model into `out` with the interpreter that has vLLM."""
    subprocess.run([python, str(Path(__file__).with_name("tiny_model.py")), str(out)], check=True, timeout=120)
    return out


@contextmanager
def serving_vllm(python: str, model: Path, work: Path, cache: VllmCache, *more: str) -> Iterator[str]:
    """Run a server in a process group of its own; yield its base URL; nothing of it is left afterwards."""
    port = _free_port()
    process = subprocess.Popen(
        [*_nice(), *_command(python, model, port, cache), *more],
        env=os.environ | SETTINGS | {"VLLM_CACHE_ROOT": str(work / "cache")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    log = _Log(process)
    try:
        log.wait_until_ready()
        url = f"http://127.0.0.1:{port}"
        # The line comes just before the socket listens.
        with httpx.Client(transport=httpx.HTTPTransport(retries=6)) as client:
            client.get(f"{url}/health").raise_for_status()
        yield url
    finally:
        _stop(process)
        log.close()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _nice() -> list[str]:
    return ["nice", "-n", "10"] if shutil.which("nice") else []


def _command(python: str, model: Path, port: int, cache: VllmCache) -> list[str]:
    options = {
        "--model": model,
        "--served-model-name": MODEL_NAME,
        "--host": "127.0.0.1",
        "--port": port,
        "--max-model-len": cache.max_model_len,
        "--max-num-seqs": 8,
        "--block-size": cache.block_tokens,
        "--num-gpu-blocks-override": cache.blocks,
    }
    switches = ["--enable-prefix-caching", "--enable-prompt-tokens-details", "--enforce-eager"]
    # `python -m`, because the command `vllm` of the CPU wheel looks for a package of another name and stops.
    command = [python, "-m", "vllm.entrypoints.openai.api_server", *switches, "--disable-uvicorn-access-log"]
    return command + [str(word) for option in options.items() for word in option]


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            print("vLLM did not end by itself and is killed", file=sys.stderr)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_S)


class _Log:
    """Reads the server's output as it comes: keeps its last lines and knows when it is ready or has ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: deque[str] = deque(maxlen=200)
        self._settled = threading.Event()
        self._ready = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_until_ready(self) -> None:
        if not self._settled.wait(START_S):
            pytest.fail(f"vLLM was not ready after {START_S:.0f} s:\n{self._tail()}", pytrace=False)
        if not self._ready:
            pytest.fail(f"vLLM ended during its start:\n{self._tail()}", pytrace=False)

    def close(self) -> None:
        self._reader.join(STOP_S)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)
            if READY_LINE in line:
                self._ready = True
                self._settled.set()
        self._settled.set()

    def _tail(self) -> str:
        errors = [line for line in self._lines if "Error" in line]
        return "".join(errors[-3:] or list(self._lines)[-10:])
