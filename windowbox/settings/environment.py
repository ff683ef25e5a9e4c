"""Settings from variables of the environment: `WINDOWBOX_NATS__URL` is the setting `nats.url`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from windowbox.errors import Malformed

_PREFIX, _BETWEEN = "windowbox_", "__"
_CONTAINERS = (BaseModel, dict, frozenset, list, tuple)


def settings(variables: Mapping[str, str], model: type[BaseModel]) -> dict[str, Any]:
    """The settings of the model that these variables hold. Empty and unknown variables count for nothing.

    Other programs, and other parts of windowbox, have variables with this prefix, too.
    """
    found: dict[str, Any] = {}
    # The shorter name first: a variable of one setting changes what that of its whole section says.
    for variable, text in sorted(variables.items()):
        name = variable.lower()
        path = name.removeprefix(_PREFIX).split(_BETWEEN)
        if not text or not name.startswith(_PREFIX) or path[0] not in model.model_fields:
            continue
        section = found
        for part in path[:-1]:
            section = section.setdefault(part, {})
            if not isinstance(section, dict):
                raise Malformed(f"{variable} is no setting: {part} is a single value")
        section[path[-1]] = _value(variable, text) if _is_json(model, path) else text
    return found


def _value(variable: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        message = f"{variable} is not JSON: lists and mappings are given as JSON in the environment"
        raise Malformed(message) from error


def _is_json(model: Any, path: list[str]) -> bool:
    """Whether the setting is a list or mapping. An unknown one is a text, which its section refuses."""
    annotation: Any = model
    for part in path:
        fields = getattr(annotation, "model_fields", {})
        if part not in fields:
            return False
        annotation = fields[part].annotation
    return _is_container(annotation)


def _is_container(annotation: Any) -> bool:
    """Whether values of this type, or of a member of this union, have parts."""
    origin = get_origin(annotation) or annotation
    if isinstance(origin, type) and issubclass(origin, _CONTAINERS):
        return True
    return any(_is_container(one) for one in get_args(annotation))
