"""values.schema.json and values.yaml, from the models of the values and of the settings."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator

import yaml
from pydantic import BaseModel

from tools.chart.values import Group, Values
from windowbox.settings.settings import Settings

_SET_BY_THE_CHART = ("nats", "metrics", "probes")
_WIDTH = 110
_HEAD = "# The values of the chart. Written by `make generate` from {}.\n"


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
    return _HEAD.format(source) + "\n".join(_lines(model(), "")) + "\n"


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
