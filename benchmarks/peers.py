"""The routers that are measured: Warmroute, nginx and three Rust routers, how to install and how to start each.

Each Rust router lives in its own virtual environment below the peers directory, outside the repository. nginx is taken
from PATH (Debian: the package nginx-light). "direct" stands for no router at all.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import Process, free_ports, running

DIRECT = "direct"
WARMROUTE = "warmroute"
NGINX = "nginx"
RUST_PACKAGES = {"smg": "smg==1.13.0", "vllm-router": "vllm-router==0.1.17", "sglang-router": "sglang-router==0.3.2"}
# The peers' mode of the same purpose as Warmroute's default, hence the one it is compared with.
CACHE_AWARE = [f"{name}:cache_aware" for name in RUST_PACKAGES]
ROUND_ROBIN = [f"{name}:round_robin" for name in RUST_PACKAGES]
READY_DEADLINE_S = 60.0
PROBE = json.dumps({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "ready?"}]}).encode()

NGINX_CONF = """\
daemon off; worker_processes 1; pid {home}/nginx.pid; error_log {home}/error.log; {user}
events {{ worker_connections 8192; }}
http {{
  access_log off; client_max_body_size 64m; client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
  fastcgi_temp_path {home}/fastcgi; uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
  keepalive_requests 10000000;
  upstream replicas {{ {servers} keepalive 1024; keepalive_requests 10000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=2048;
    location / {{
      proxy_pass http://replicas; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
      proxy_read_timeout 1h;
    }}
  }}
}}
"""


def default_peers_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "warmroute" / "peers"


@dataclass(frozen=True, slots=True)
class Setup:
    """What a router is started with: its two ports, the replicas behind it, and a directory for its files."""

    port: int
    metrics_port: int
    replicas: Sequence[str]
    home: Path
    peers_dir: Path


def warmroute_command(setup: Setup, policy: str) -> list[str]:
    program = Path(sys.executable).with_name("warmroute")
    replicas = [part for url in setup.replicas for part in ("--replica", url)]
    ports = ["--port", str(setup.port), "--admin-port", str(setup.metrics_port)]
    return [str(program), "serve", *replicas, *ports, *(["--policy", policy] if policy else [])]


def nginx_command(setup: Setup, _: str) -> list[str]:
    servers = "".join(f"server {url.removeprefix('http://')}; " for url in setup.replicas)
    user = "user root;" if os.geteuid() == 0 else ""
    conf = setup.home / "nginx.conf"
    conf.write_text(NGINX_CONF.format(home=setup.home, user=user, servers=servers, port=setup.port))
    return [shutil.which("nginx") or "nginx", "-p", str(setup.home), "-c", str(conf)]


def _rust_command(name: str, launch: list[str], more: list[str]) -> Callable[[Setup, str], list[str]]:
    def command(setup: Setup, policy: str) -> list[str]:
        program = str(setup.peers_dir / name / "bin" / name)
        address = ["--host", "127.0.0.1", "--port", str(setup.port), "--worker-urls", *setup.replicas]
        return [program, *launch, *address, "--policy", policy, "--prometheus-port", str(setup.metrics_port), *more]

    return command


SMG_OPTIONS = ["--prometheus-host", "127.0.0.1", "--shutdown-grace-period-secs", "1"]
COMMANDS: dict[str, Callable[[Setup, str], list[str]]] = {
    WARMROUTE: warmroute_command,
    NGINX: nginx_command,
    "smg": _rust_command("smg", ["launch"], SMG_OPTIONS),
    "vllm-router": _rust_command("vllm-router", [], ["--worker-startup-check-interval", "1"]),
    "sglang-router": _rust_command("sglang-router", ["launch"], ["--worker-startup-check-interval", "1"]),
}


def absent(name: str, peers_dir: Path) -> str | None:
    """Why the router `name` ("smg:cache_aware", "nginx", ...) cannot run here; None if it can."""
    kind = name.partition(":")[0]
    if kind == DIRECT:
        return None
    if kind not in COMMANDS:
        return f"unknown router (known: {', '.join([DIRECT, *COMMANDS])})"
    if kind == NGINX:
        return None if shutil.which("nginx") else "nginx is not on PATH"
    program = Path(sys.executable).with_name("warmroute") if kind == WARMROUTE else peers_dir / kind / "bin" / kind
    return None if program.exists() else f"{kind} is not installed"


def install(peers_dir: Path) -> None:
    """Install the Rust routers with pip, each in its own virtual environment."""
    for name, requirement in RUST_PACKAGES.items():
        if absent(name, peers_dir):
            print(f"installing {requirement} into {peers_dir / name}", flush=True)
            venv.create(peers_dir / name, with_pip=True)
            subprocess.run([str(peers_dir / name / "bin" / "pip"), "install", "-q", requirement], check=True)


def start(
    name: str, replicas: Sequence[str], home: Path, peers_dir: Path
) -> tuple[AbstractContextManager[Process], int]:
    """The router `name` in front of `replicas` as a context manager, and the port it will serve on."""
    kind, _, policy = name.partition(":")
    port, metrics_port = free_ports(2)
    home.mkdir(parents=True, exist_ok=True)
    command = COMMANDS[kind](Setup(port, metrics_port, replicas, home, peers_dir), policy)
    return running(command), port


def wait_ready(process: Process, port: int) -> None:
    """Return when the router answers a chat request. Errors: RuntimeError when it ended or the time is over."""
    until = time.monotonic() + READY_DEADLINE_S
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", PROBE, {"content-type": "application/json"}
    )
    problem = "it ended"
    while process.alive() and time.monotonic() < until:
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                answer.read()
                return
        except (OSError, urllib.error.URLError) as error:
            problem = str(error)
        time.sleep(0.2)
    raise RuntimeError(f"not ready ({problem}): {' '.join(process.command)}")
