"""The first process of a container, which the kernel spares every signal that it has no handler for."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

from tests.rig.network import REQUIRED
from tests.rig.programs import absent

ALONE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]


def test_the_first_process_ends_at_sigterm_while_it_still_starts() -> None:
    """The command line's modules, whose import takes the time, are replaced by one that sends the signal."""
    if shutil.which("unshare") is None or subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode:
        absent("no process namespace can be made here", REQUIRED)
    code = (
        "import os, signal, sys, types\n"
        "cli = types.ModuleType('router.app.cli')\n"
        "cli.main = lambda: (os.kill(os.getpid(), signal.SIGTERM), sys.exit(3))\n"
        "sys.modules['router.app.cli'] = cli\n"
        "assert os.getpid() == 1\n"
        "from router.app.entry import main\n"
        "main()\n"
    )
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    outcome = subprocess.run([*ALONE, sys.executable, "-c", code], env=variables, timeout=30, check=False)
    assert outcome.returncode == 128 + signal.SIGTERM
