"""Which machines can have real nodes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.nodes import hostresources
from tests.support.cases import cases

_ROOT = Path(__file__).parents[3]
_NAMES = "hostresources.unsuited(), hostresources.usual()"
_ASK = f"from sandbox.nodes import hostresources; print({_NAMES}, sep='|')"


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv") or bool(hostresources.unsuited()),
    reason="needs root, to give up rights",
)
@cases(
    "given_up reason",
    ("container", "--bounding-set=-sys_admin", "root with CAP_NET_ADMIN and CAP_SYS_ADMIN"),
    ("network", "--bounding-set=-net_admin", "root with CAP_NET_ADMIN and CAP_SYS_ADMIN"),
    ("user", "--reuid=65534", "root"),
)
def test_real_nodes_need_the_right_to_make_networks(given_up: str, reason: str) -> None:
    clear = ["--clear-groups"] if given_up.startswith("--reuid") else []
    answer = subprocess.run(
        ["setpriv", given_up, *clear, sys.executable, "-c", _ASK],
        cwd=_ROOT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    said, _, usual = answer.stdout.strip().partition("|")
    assert said.startswith(reason)
    assert usual == "0"
