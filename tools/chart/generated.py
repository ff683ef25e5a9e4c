"""The files of the charts that are written from Python: `python -m tools.chart.generated` writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from bus import streams
from tools.chart import alerts, dashboards, schema
from tools.chart.admission import APPLICATION, RUNTIME, AdmissionValues
from windowbox.rights import rbac
from windowbox.settings.settings import ObjectsSettings

CHART = Path(__file__).parents[2] / "deploy" / "charts" / "windowbox"
ROLES = {"watch": "watcher", "work": "worker", "patch": "patcher", "admit": "admit", "grant": "granter"}
"""The roles that use the API, by their commands."""

_HEAD = "# Written by `make generate` from {}.\n"


def files() -> dict[str, str]:
    """The text of each file, by its path in the chart of windowbox."""
    others = sum(one["max_bytes"] for one in streams.streams(1) if one["name"] != streams.OBJECTS)
    return {
        "values.yaml": schema.values(),
        "values.schema.json": schema.schema(),
        "files/group.yaml": schema.group(),
        "files/bus.yaml": _written(
            "bus/streams.py: MiB of OBJECTS by default, bytes of all others",
            {"objects": ObjectsSettings().size, "others": others},
        ),
        "files/rbac.yaml": _written("windowbox/rights/rbac.py", rights()),
        "files/alerts.yaml": _written("tools/chart/alerts.yaml", alerts.groups()),
        "../../../docs/alerts.md": alerts.page(),
        **{
            f"../{chart}/{name}": text
            for chart, rules in (
                # In the namespace of the Deployment, and in the garden.
                (RUNTIME, rbac.OWN_SECRET_RULES["admission"]),
                (APPLICATION, rbac.RULES["admission"]),
            )
            for name, text in (
                ("values.yaml", schema.values(AdmissionValues)),
                ("values.schema.json", schema.schema(AdmissionValues)),
                ("files/rbac.yaml", _written("windowbox/rights/rbac.py", {"rules": rules})),
            )
        },
        **{f"files/dashboards/{name}.json": dashboards.text(name) for name in dashboards.DASHBOARDS},
    }


def rights() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Of each role: rules in the cluster, in granted namespaces (`secrets`), and in its own (`own`)."""
    cluster = {**rbac.RULES, "granter": rbac.granter()}
    return {
        role: {
            "cluster": cluster[role],
            "secrets": rbac.SECRET_RULES.get(role, []),
            "own": rbac.OWN_SECRET_RULES.get(role, []),
        }
        for role in (*ROLES.values(), "provider")
    }


def _written(source: str, content: dict[str, Any]) -> str:
    return _HEAD.format(source) + yaml.safe_dump(content)


if __name__ == "__main__":
    for name, text in files().items():
        path = CHART / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
