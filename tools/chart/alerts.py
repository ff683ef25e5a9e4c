"""The rules and the page of the alerts in alerts.yaml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Alert:
    name: str
    expression: str
    lasting: str
    summary: str
    remedy: str
    severity: str = "warning"
    role: str = ""
    """The role that has to be enabled in the chart for this alert."""


ALERTS = tuple(Alert(**one) for one in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()))
_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")
_HEAD = """# Alerts

An alert of the chart's PrometheusRule fires: what does it mean, and what should I do? For operators;
`make generate` writes this page.

The chart's value `operator: {enabled: true}` adds a Pod for `windowbox top`, `trace` and `record`:
`kubectl exec --namespace windowbox-system --tty --stdin deploy/windowbox-operator -- windowbox top`.

"""


def groups() -> dict[str, Any]:
    """The rules for Prometheus: of all installations, and of roles that need not be enabled."""
    return {
        "groups": [
            {
                "name": f"windowbox-{role}" if role else "windowbox",
                "rules": [
                    {
                        "alert": one.name,
                        "expr": one.expression,
                        "for": one.lasting,
                        "labels": {"severity": one.severity},
                        "annotations": {
                            "summary": one.summary,
                            "runbook": f"docs/alerts.md#{one.name.lower()}",
                        },
                    }
                    for one in ALERTS
                    if one.role == role
                ],
            }
            for role in ("", "admit", "edge")
        ]
    }


def page() -> str:
    """docs/alerts.md."""
    sections = []
    for one in ALERTS:
        # In a summary, a label stands for its value: on the page it is written in capitals.
        summary = _LABEL.sub(lambda label: label[1].upper(), one.summary)
        sections.append(f"## {one.name}\n\n{summary}. {one.remedy}.\n")
    return _HEAD + "\n".join(sections)
