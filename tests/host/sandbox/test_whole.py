"""A sandbox as `windowbox up` starts it: DNSRecords of the cluster arrive in DNS."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from sandbox import stages
from sandbox.options import TOGETHER, Options
from sandbox.supervisor import Supervisor
from tests.support import servers, worldwithnodes

NAMESPACE = """
apiVersion: v1
kind: Namespace
metadata: {name: whole}
---
apiVersion: v1
kind: Secret
metadata: {name: dns, namespace: whole}
---
"""
RECORD = """
apiVersion: extensions.gardener.cloud/v1alpha1
kind: DNSRecord
metadata: {name: NAME, namespace: whole, annotations: {gardener.cloud/operation: reconcile}}
spec:
  type: local
  secretRef: {name: dns, namespace: whole}
  name: NAME.local.gardener.cloud
  recordType: A
  values: [10.1.2.3]
"""


@pytest.mark.long  # simulated/test_demo_kinds.py shows a record, and the rights, in a whole sandbox
async def test_a_record_arrives_in_dns_with_least_rights(tmp_path: Path) -> None:
    servers.need(*stages.PROGRAMS, "kubectl", "dig")
    async with Supervisor.running(tmp_path / "whole", Options.model_validate(TOGETHER)) as sandbox:
        await asyncio.to_thread(_kubectl, sandbox, "apply", "--filename=-", stdin=NAMESPACE)
        found = [await asyncio.to_thread(_ask_for_record, sandbox, "web")]
        restarts = {name: child.restarts for name, child in sandbox.state.children.items()}
        await sandbox.kill("runner-1")
        found.append(await asyncio.to_thread(_ask_for_record, sandbox, "api"))
        again = sandbox.state.children["runner-1"].restarts
        log = await asyncio.to_thread((sandbox.folder / "logs" / "runner-1.log").read_text)
    assert found == ["10.1.2.3\n", "10.1.2.3\n"]
    assert set(restarts.values()) == {0}, restarts
    assert again == 1
    assert "forbid" not in log.lower()


def _ask_for_record(sandbox: Supervisor, name: str) -> str:
    """Create the record, wait until it is reported done, and say what DNS answers."""
    _kubectl(sandbox, "apply", "--filename=-", stdin=RECORD.replace("NAME", name))
    _kubectl(
        sandbox, "wait", "--namespace=whole", f"dnsrecord/{name}", "--timeout=60s",
        "--for=jsonpath={.status.lastOperation.state}=Succeeded",
    )  # fmt: skip
    port = str(sandbox.state.ports["named"])
    answer = subprocess.run(
        ["dig", "@127.0.0.1", "-p", port, "+short", f"{name}.local.gardener.cloud"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return answer.stdout


def _kubectl(sandbox: Supervisor, *arguments: str, stdin: str = "") -> None:
    kubeconfig = Path(sandbox.environment()["KUBECONFIG"])
    worldwithnodes.kubectl(kubeconfig, *arguments, stdin=stdin, patience=90)
