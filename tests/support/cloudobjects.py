"""Objects of six clouds: those of examples/clouds, and what clouds answer to them."""

from __future__ import annotations

from base64 import b64encode
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


def secret(cloud: str, **data: str) -> Object:
    """The Secret with credentials, or with other values."""
    found = one(cloud, "Secret")
    changed = {name: b64encode(value.encode()).decode() for name, value in data.items()}
    return {**found, "data": {**found["data"], **changed}}


def credentials_binding(cloud: str) -> Object:
    return one(cloud, "CredentialsBinding")


def secret_binding(cloud: str) -> Object:
    """The other kind of binding to the same Secret."""
    name = secret(cloud)["metadata"]["name"]
    return {
        "apiVersion": "core.gardener.cloud/v1beta1",
        "kind": "SecretBinding",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "provider": {"type": cloud},
        "secretRef": {"namespace": NAMESPACE, "name": name},
    }


def for_admission(object: Object, cloud: str) -> Object:
    """The object with the label by which Gardener's API server selects the webhooks of its cloud."""
    labels = {
        **object["metadata"].get("labels", {}),
        f"provider.extensions.gardener.cloud/{cloud}": "true",
    }
    return {**object, "metadata": {**object["metadata"], "labels": labels}}


def namespaced_profile(cloud: str) -> Object:
    """A profile that adds a version to an image of the example's CloudProfile."""
    parent = one(cloud, "CloudProfile")
    (image,) = parent["spec"]["machineImages"]
    (mapped,) = parent["spec"]["providerConfig"]["machineImages"]
    added = {**image, "versions": [{**image["versions"][0], "version": "2000.0.0"}]}
    config = {
        "apiVersion": parent["spec"]["providerConfig"]["apiVersion"],
        "kind": "CloudProfileConfig",
        "machineImages": [{**mapped, "versions": [{**mapped["versions"][0], "version": "2000.0.0"}]}],
    }
    return {
        "apiVersion": "core.gardener.cloud/v1beta1",
        "kind": "NamespacedCloudProfile",
        "metadata": {"name": "own", "namespace": NAMESPACE},
        "spec": {
            "parent": {"kind": "CloudProfile", "name": cloud},
            "machineImages": [added],
            "providerConfig": config,
        },
    }


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
