"""helm, and deploy/charts/windowbox as it renders it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from windowbox.chart.generated import CHART
from windowbox.sandbox import binaries

NAMESPACE = "windowbox-system"
PRESETS = sorted(CHART.glob("values-*.yaml"))
Manifest = dict[str, Any]


def helm(*arguments: str, patience: float = 180) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [binaries.find("helm"), *arguments], capture_output=True, text=True, timeout=patience, check=False
    )


def rendered(*files: Path, **values: Any) -> list[Manifest]:
    """What the chart renders with these files and values, those of `helm test` included."""
    done = _template(files, values)
    if done.returncode:
        raise AssertionError(done.stderr)
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def refusal(**values: Any) -> str:
    """Why the chart is not rendered with these values."""
    done = _template((), values)
    assert done.returncode, "it was rendered"
    return done.stderr


def notes(**values: Any) -> str:
    """What helm says after an installation with these values."""
    given = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    done = helm("install", "windowbox", str(CHART), "--dry-run=client", f"--namespace={NAMESPACE}", *given)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    """By their names."""
    return {one["metadata"]["name"]: one for one in manifests if one["kind"] == kind}


def _template(files: tuple[Path, ...], values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    given = [f"--values={file}" for file in files]
    given += [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    return helm("template", "windowbox", str(CHART), f"--namespace={NAMESPACE}", *given)
