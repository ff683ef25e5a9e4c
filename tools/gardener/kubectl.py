"""Manifests, kubectl and helm: apply many objects, and wait for one."""

from __future__ import annotations

import base64
import json
import string
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.programs import binaries
from sandbox.progress import Job
from windowbox.errors import Refused, Unreachable

_MANIFESTS = Path(__file__).parent / "manifests"
_PATIENCE = 120
_OPERATION = "|".join(
    f"{{.{path}}}"
    for path in (
        "metadata.generation", "status.observedGeneration", "status.lastOperation.state",
        "status.lastOperation.progress", "status.lastOperation.description",
    )
) + r'{"\n"}'  # fmt: skip


@dataclass(frozen=True)
class Kubectl:
    """kubectl for the cluster of one kubeconfig."""

    kubeconfig: Path

    @property
    def command(self) -> list[str]:
        return [str(binaries.find("kubectl")), f"--kubeconfig={self.kubeconfig}"]

    def __call__(self, *arguments: str, stdin: str = "", patience: int = _PATIENCE) -> str:
        return run([*self.command, *arguments], stdin, patience)

    def apply(self, manifests: str) -> None:
        """Create or update these objects. What others have changed is as in the manifests again."""
        self(
            "apply", "--server-side", "--force-conflicts", "--field-manager=windowbox", "--filename=-",
            stdin=manifests,
        )  # fmt: skip

    def get(self, *what: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("get", *what, "--output=json"))
        return found

    def secret(self, namespace: str, selector: str) -> dict[str, bytes]:
        """The data of the newest Secret with these labels."""
        secrets = self.get("secrets", f"--namespace={namespace}", f"--selector={selector}")["items"]
        if not secrets:
            raise Refused(f"there is no Secret with {selector} in the namespace {namespace}")
        newest = max(secrets, key=lambda secret: str(secret["metadata"]["creationTimestamp"]))
        return {key: base64.b64decode(text) for key, text in newest["data"].items()}

    def wait(self, what: str, condition: str, *, namespace: str = "", patience: int = _PATIENCE) -> None:
        """Wait until the object exists and meets the condition, `jsonpath=…` or `condition=…`."""
        inside = [f"--namespace={namespace}"] if namespace else []
        for wanted in ("create", condition):
            self("wait", what, f"--for={wanted}", f"--timeout={patience}s", *inside, patience=patience + 10)

    def reconciled(self, what: str, job: Job, *, namespace: str = "", patience: int) -> None:
        """Wait until Gardener has reconciled the object; `job` shows what it does meanwhile."""
        inside = [f"--namespace={namespace}"] if namespace else []
        watching = [*self.command, "get", what, *inside, "--watch", f"--output=jsonpath={_OPERATION}"]
        # `timeout` ends kubectl, and with it the loop.
        with subprocess.Popen(
            ["timeout", str(patience), *watching], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                for line in process.stdout:
                    parts = line.rstrip("\n").split("|", 4)
                    if len(parts) < _OPERATION.count("|") + 1:
                        continue  # a description may have several lines
                    generation, seen, state, progress, description = parts
                    job.detail = f"{progress} % {description[:80]}"
                    if generation == seen and state == "Succeeded":
                        return
            finally:
                process.terminate()
            said = process.stderr.read().strip()[-500:]
        raise Unreachable(f"{what} is not reconciled after {patience} s: {job.detail or said}")


def manifest(name: str, facts: Mapping[str, str]) -> str:
    """The manifests of a file, with the facts about this sandbox in place of `$name`."""
    return string.Template((_MANIFESTS / f"{name}.yaml").read_text()).substitute(facts)


def rendered(chart: Path, namespace: str, values: str) -> str:
    """The objects of a chart with these values."""
    command = [str(binaries.find("helm")), "template", chart.name, str(chart), f"--namespace={namespace}"]
    return run([*command, "--include-crds", "--values=-"], values, _PATIENCE)


def run(command: Sequence[str], stdin: str, patience: int) -> str:
    """The output of a program that has to succeed."""
    what = " ".join([Path(command[0]).name, *command[1:4]])
    try:
        ended = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=patience, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{what} did not end within {patience} s") from None
    if ended.returncode:
        raise Refused(f"{what}: {ended.stderr.strip()[-2000:]}")
    return ended.stdout
