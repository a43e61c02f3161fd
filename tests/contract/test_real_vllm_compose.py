"""The commands of docker-compose.yml's vLLM servers, read by a real vLLM's own parser of `vllm serve`.

Not run by default: see test_real_vllm_cache.py.
"""

from __future__ import annotations

import subprocess

import pytest

from tests.contract.vllm_server import vllm_python
from tests.deploy.compose.project import services

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(300)]

PARSE = """
import sys
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser, serve = FlexibleArgumentParser(), ServeSubcommand()
serve.subparser_init(parser.add_subparsers(dest="subparser"))
read = parser.parse_args(["serve", *sys.argv[1:]])
serve.validate(read)
print("\\n".join(f"{name}={getattr(read, name)}" for name in READ))
"""
READ = {
    "model_tag": "Qwen/Qwen3-8B",
    "port": "8000",
    "enable_prompt_tokens_details": "True",
    "enable_force_include_usage": "True",
    "kv_cache_metrics": "True",
    "max_num_queued_reqs": "200",
    "shutdown_timeout": "60",
    "kv_offloading_size": "16.0",
}


@pytest.mark.parametrize("name", ["vllm-1", "vllm-2"])
def test_vllm_takes_the_command(name: str) -> None:
    code = f"READ = {list(READ)}\n{PARSE}"
    command = [vllm_python(), "-c", code, *services("gpu")[name].command]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stderr
    assert [f"{name}={value}" for name, value in READ.items()] == ran.stdout.splitlines()[-len(READ) :]
