"""helm, and deploy/charts/windowbox as it renders it."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from sandbox.programs import binaries
from sandbox.servers.apiserver import ApiServer
from tools.chart.generated import CHART
from windowbox.errors import Refused

NAMESPACE = "windowbox-system"
PRESETS = sorted(CHART.glob("values-*.yaml"))
Manifest = dict[str, Any]


def helm(*arguments: str, patience: float = 180) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [binaries.find("helm"), *arguments], capture_output=True, text=True, timeout=patience, check=False
    )


def rendered(*files: Path, **values: Any) -> list[Manifest]:
    """The manifests with these files and values, those of `helm test` included."""
    return _manifests(_template(files, values))


def rendered_from(chart: Path, **values: Any) -> list[Manifest]:
    """The manifests of a changed copy of the chart."""
    return _manifests(_template((), values, chart))


def refusal(**values: Any) -> str:
    """The error with which helm refuses these values."""
    done = _template((), values)
    assert done.returncode, "it was rendered"
    return done.stderr


def notes(**values: Any) -> str:
    """The notes after an installation with these values."""
    given = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    done = helm("install", "windowbox", str(CHART), "--dry-run=client", f"--namespace={NAMESPACE}", *given)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]


def of_chart(name: str, release: str, namespace: str, **values: Any) -> list[Manifest]:
    """The manifests of a chart beside it. A refusal of helm is an AssertionError."""
    given = [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]
    done = helm("template", release, str(CHART.parent / name), f"--namespace={namespace}", *given)
    return _manifests(done)


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    """By their names."""
    return {one["metadata"]["name"]: one for one in manifests if one["kind"] == kind}


def pod(manifests: list[Manifest], name: str, kind: str = "Deployment") -> Manifest:
    """The spec of the Pods that it makes."""
    found: Manifest = of_kind(manifests, kind)[name]["spec"]["template"]["spec"]
    return found


def dry_run(api: ApiServer, manifest: Manifest) -> str:
    """The error of the API server in a dry run; empty if it accepts the manifest."""
    plural = manifest["kind"].lower()
    plural = f"{plural[:-1]}ies" if plural.endswith("y") else f"{plural}s"
    metadata, version = manifest["metadata"], manifest["apiVersion"]
    place = f"/namespaces/{metadata.get('namespace', NAMESPACE)}"
    if manifest["kind"].startswith(("Cluster", "ValidatingAdmission")):
        place = ""
    group = f"/apis/{version}" if "/" in version else f"/api/{version}"
    path = f"{group}{place}/{plural}/{metadata['name']}"
    path += "?fieldManager=helm&force=true&dryRun=All&fieldValidation=Strict"
    apply = "application/apply-patch+yaml"
    try:
        api.request("PATCH", path, body=manifest, content_type=apply, timeout=60).close()
    except Refused as error:
        return str(error)
    return ""


def _manifests(done: subprocess.CompletedProcess[str]) -> list[Manifest]:
    if done.returncode:
        raise AssertionError(done.stderr)
    return [one for one in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if one]


def _template(
    files: tuple[Path, ...], values: dict[str, Any], chart: Path = CHART
) -> subprocess.CompletedProcess[str]:
    given = [f"--values={file}" for file in files]
    given += [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    arguments = ("template", "windowbox", str(chart), f"--namespace={NAMESPACE}", *given)
    return _once(*arguments) if chart == CHART else helm(*arguments)


@cache
def _once(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Many tests look at the same manifests of the chart, which none of them changes."""
    return helm(*arguments)
