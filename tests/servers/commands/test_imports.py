"""What processes import: libraries that they do not use would cost each of them memory and time."""

import subprocess
import sys

import pytest

MODELS = "kubernetes_asyncio.client.models"
ROLES = [f"commands.roles.{role}" for role in ("watching", "working", "edging", "patching")]
POOLS = """
import importlib
from windowbox.kinds import POOLS
for row in POOLS.values():
    importlib.import_module(row.module)
"""
REFUSE_ONCE = """
class Refuse:
    def find_spec(self, name, path, target=None):
        if name == "kubernetes_asyncio.config.openid":
            sys.meta_path.remove(self)
            raise ImportError("cannot import name 'CoreV1Api' from 'kubernetes_asyncio.client'")

sys.meta_path.insert(0, Refuse())
"""


def loaded(code: str) -> set[str]:
    """The modules that a process has after this."""
    script = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert not done.returncode, done.stderr
    return set(done.stdout.split())


def test_no_process_imports_the_models_of_the_kubernetes_library() -> None:
    found = loaded(f"import {', '.join([*ROLES, 'commands.roles.admitting'])}\n{POOLS}")
    assert "kubernetes_asyncio.config.kube_config" in found
    assert MODELS not in found


def test_roles_import_no_more_than_they_take() -> None:
    found = loaded("import commands.roles.watching, commands.roles.patching")
    assert not {"cryptography", "aiodocker", "workers.core.serving"} & found


def test_workers_import_cryptography_with_the_first_control_plane() -> None:
    assert "cryptography" not in loaded(f"import commands.roles.working\n{POOLS}")


@pytest.mark.parametrize("before", ["import kubernetes_asyncio.config", REFUSE_ONCE])
def test_a_library_that_needs_its_models_is_imported_as_a_whole(before: str) -> None:
    found = loaded(
        f"{before}\nfrom windowbox.clients.kubernetes.kubelibrary import *\nkube_config.load_kube_config"
    )
    assert {MODELS, "kubernetes_asyncio.config.openid"} <= found


def test_the_whole_library_can_be_imported_afterwards() -> None:
    code = (
        "from windowbox.clients.kubernetes import kubelibrary\nfrom kubernetes_asyncio import client, config"
    )
    check = "assert client.Configuration is kubelibrary.Configuration and client.CoreV1Api"
    assert MODELS in loaded(f"{code}\n{check}")
