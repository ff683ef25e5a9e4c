"""The files of the charts that are written from Python: `python -m tools.chart.generated` writes them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from bus import streams
from tools.chart import alerts, dashboards
from tools.chart.admission import APPLICATION, RUNTIME, AdmissionValues
from tools.chart.values import Group, Values
from windowbox.rights import rbac
from windowbox.settings.settings import ObjectsSettings, Settings

CHART = Path(__file__).parents[2] / "deploy" / "charts" / "windowbox"
ROLES = {
    "watch": "watcher", "work": "worker", "patch": "patcher", "admit": "admit", "ui": "ui",
    "grant": "granter",
}  # fmt: skip
"""The roles that use the API, by their commands."""

_HEAD = "# Written by `make generate` from {}.\n"
_VALUES_HEAD = "# The values of the chart. Written by `make generate` from {}.\n"
_SET_BY_THE_CHART = ("nats", "metrics", "probes")
_WIDTH = 110


def files() -> dict[str, str]:
    """The text of each file, by its path in the chart of windowbox."""
    others = sum(one["max_bytes"] for one in streams.streams(1) if one["name"] != streams.OBJECTS)
    return {
        "values.yaml": values(),
        "values.schema.json": schema(),
        "files/group.yaml": group(),
        "files/bus.yaml": _written(
            "bus/streams.py: MiB of OBJECTS by default, bytes of all others",
            {"objects": ObjectsSettings().size, "others": others},
        ),
        "files/rbac.yaml": _written("windowbox/rights/rbac.py", rights()),
        "files/policies.yaml": _written("windowbox/rights/rbac.py", {"policies": rbac.policies()}),
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
                ("values.yaml", values(AdmissionValues)),
                ("values.schema.json", schema(AdmissionValues)),
                ("files/rbac.yaml", _written("windowbox/rights/rbac.py", {"rules": rules})),
            )
        },
        f"../{APPLICATION}/files/rbac-clouds.yaml": _written(
            "windowbox/rights/rbac.py", {"rules": rbac.CLOUD_RULES}
        ),
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
    } | {"viewer": {"cluster": rbac.VIEWER_RULES, "secrets": [], "own": []}}


def schema(model: type[BaseModel] = Values) -> str:
    """The JSON schema of the values. Unknown keys are refused."""
    values, settings = model.model_json_schema(), Settings.model_json_schema()
    for name in _SET_BY_THE_CHART:
        del settings["properties"][name]
    made = settings.pop("$defs")
    for field in Settings.model_fields.values():
        # A section may be incomplete: the settings of a role are merged over the settings of all roles.
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            made[section.__name__].pop("required", None)
    clashing = made.keys() & values["$defs"].keys()
    assert not clashing, clashing
    values["$defs"] |= made | {"Settings": settings}
    if overwrite := values["properties"].get("imageVectorOverwrite"):
        overwrite["type"] = ["object", "string"]
    text = json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema"} | values, indent=1)
    return text.replace('"$comment": "Settings"', '"$ref": "#/$defs/Settings"') + "\n"


def values(model: type[BaseModel] = Values) -> str:
    """values.yaml: all defaults, with their descriptions."""
    source = model.__module__.replace(".", "/") + ".py"
    return _VALUES_HEAD.format(source) + "\n".join(_lines(model(), "")) + "\n"


def group() -> str:
    """The defaults of a group of pools, for the templates."""
    return yaml.safe_dump(Group().model_dump(by_alias=True), sort_keys=False)


def _lines(model: BaseModel, indent: str) -> Iterator[str]:
    for name, field in type(model).model_fields.items():
        mark = f"{indent}# "
        yield from textwrap.wrap(
            field.description or "",
            _WIDTH,
            initial_indent=mark,
            subsequent_indent=mark,
            break_on_hyphens=False,
        )
        key, value = field.alias or name, getattr(model, name)
        if isinstance(value, BaseModel):
            yield f"{indent}{key}:"
            yield from _lines(value, f"{indent}  ")
        elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
            yield f"{indent}{key}:"
            for number, line in enumerate(_lines(value[0], f"{indent}    ")):
                yield line if number else f"{indent}  - {line.strip()}"
        else:
            spelled = yaml.safe_dump(value, default_flow_style=True, width=10_000).split("\n")[0]
            yield f"{indent}{key}: {spelled}"


def _written(source: str, content: dict[str, Any]) -> str:
    return _HEAD.format(source) + yaml.safe_dump(content)


if __name__ == "__main__":
    for name, text in files().items():
        path = CHART / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
