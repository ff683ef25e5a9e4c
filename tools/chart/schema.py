"""values.schema.json and values.yaml, from the models of the values and of the settings."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import BaseModel

from tools.chart.values import Group, Values
from windowbox.settings.settings import Settings

_OF_THE_CHART = ("nats", "metrics", "probes")
_WIDTH = 110
_HEAD = "# The values of the chart. Written by `make generate` from {}.\n"


def schema(model: type[BaseModel] = Values) -> str:
    """The JSON schema of the values. Unknown keys are refused."""
    values, settings = model.model_json_schema(), Settings.model_json_schema()
    for name in _OF_THE_CHART:
        del settings["properties"][name]
    made = settings.pop("$defs")
    for field in Settings.model_fields.values():
        # A section need not be complete: those of a role are laid over those of all.
        if section := _section(field.annotation):
            made[section.__name__].pop("required", None)
    clashing = made.keys() & values["$defs"].keys()
    assert not clashing, clashing
    values["$defs"] |= made | {"Settings": settings}
    if overwrite := values["properties"].get("imageVectorOverwrite"):
        overwrite["type"] = ["object", "string"]
    text = json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema"} | values, indent=1)
    return text.replace('"$comment": "Settings"', '"$ref": "#/$defs/Settings"') + "\n"


def values(model: type[BaseModel] = Values) -> str:
    """values.yaml: all defaults, each with what it means."""
    source = model.__module__.replace(".", "/") + ".py"
    return _HEAD.format(source) + "\n".join(_lines(model(), "")) + "\n"


def group() -> str:
    """What a group of pools has that does not say otherwise."""
    return yaml.safe_dump(Group().model_dump(by_alias=True), sort_keys=False)


def _lines(model: BaseModel, indent: str) -> Iterator[str]:
    for name, field in type(model).model_fields.items():
        yield from _comment(field.description or "", indent)
        key, value = field.alias or name, getattr(model, name)
        if isinstance(value, BaseModel):
            yield f"{indent}{key}:"
            yield from _lines(value, f"{indent}  ")
        elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
            yield f"{indent}{key}:"
            for number, line in enumerate(_lines(value[0], f"{indent}    ")):
                yield line if number else f"{indent}  - {line.strip()}"
        else:
            yield f"{indent}{key}: {_spelled(value)}"


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ", break_on_hyphens=False
    )


def _spelled(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).split("\n")[0]


def _section(annotation: object) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
