"""Objects of six clouds: those of examples/clouds, and what clouds answer to them."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from clouds import table
from clouds.frame import admission
from clouds.frame.cloud import Lookup
from clouds.frame.problems import Problem

FOLDER = Path(__file__).parents[2] / "examples" / "clouds"
CLOUDS = table.TYPES
NAMESPACE = "garden-dev"

Object = dict[str, Any]


def example(cloud: str) -> list[Object]:
    """All objects of the example of a cloud. They may be changed."""
    return deepcopy(_read(cloud))


def one(cloud: str, kind: str) -> Object:
    return next(found for found in example(cloud) if found["kind"] == kind)


def shoot(cloud: str) -> Object:
    return one(cloud, "Shoot")


def provider(shoot: Object) -> Any:
    return shoot["spec"]["provider"]


def finding(*objects: Object) -> Lookup:
    """A lookup among these objects."""
    by_name = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in objects
    }
    return lambda kind, namespace, name: by_name.get((kind, namespace, name))


def problems(cloud: str, new: Object, old: Object | None = None) -> list[Problem]:
    """The problems of an object, beside the others of its cloud's example."""
    find = finding(*example(cloud))
    return admission.problems(table.cloud(cloud), new["kind"].lower(), new, old, find)


@cache
def _read(cloud: str) -> list[Object]:
    return list(yaml.safe_load_all((FOLDER / f"{cloud}.yaml").read_text()))
