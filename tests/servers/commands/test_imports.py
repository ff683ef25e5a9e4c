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
    [line] = _said(f"import sys\n{code}\nprint(*sys.modules)")
    return set(line.split())


def _said(script: str) -> list[str]:
    """The lines that this prints."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def imported() -> list[set[str]]:
    """The modules after each of these steps: importing takes a second."""
    steps = (
        "import commands.roles.watching, commands.roles.patching",
        f"import commands.roles.working\n{POOLS}",
        f"import {', '.join([*ROLES, 'commands.roles.admitting'])}",
    )
    script = "\n".join(f"{step}\nprint(*sys.modules)" for step in ("import sys", *steps))
    return [set(line.split()) for line in _said(script)[1:]]


def test_roles_import_no_more_than_they_take(imported: list[set[str]]) -> None:
    watching_and_patching, _, _ = imported
    assert not {"cryptography", "aiodocker", "workers.core.serving"} & watching_and_patching


def test_workers_import_cryptography_with_the_first_control_plane(imported: list[set[str]]) -> None:
    _, working, _ = imported
    assert "workers.core.serving" in working
    assert "cryptography" not in working


def test_only_a_process_that_runs_envoy_imports_grpc_and_protobuf(imported: list[set[str]]) -> None:
    *_, all_roles = imported
    assert "windowbox.clients.xds.server" in all_roles
    assert not {"grpc", "google.protobuf"} & all_roles


def test_no_role_imports_what_it_does_not_use(imported: list[set[str]]) -> None:
    """Each of these takes half a megabyte and more in every process."""
    watching_and_patching, _, all_roles = imported
    unused = {"difflib", "dotenv", "opentelemetry", "pydantic_settings", "rich", "sqlite3", "unittest"}
    assert not (unused | {"dns.query", "multiprocessing", "urllib3", "xml"}) & all_roles
    assert not {"dns", "workers"} & watching_and_patching


def test_no_process_imports_the_models_of_the_kubernetes_library(imported: list[set[str]]) -> None:
    *_, all_roles = imported
    assert "kubernetes_asyncio.config.kube_config" in all_roles
    assert MODELS not in all_roles


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
