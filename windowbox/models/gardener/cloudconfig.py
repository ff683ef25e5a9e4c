"""The configuration file of cloud-controller-manager-local."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from windowbox.errors import Malformed

_LONGEST = 500
"""Characters of a path in an error: names in it may have any length."""


class Strict(BaseModel):
    """Fields that are not known are errors: the program that this file is for ends if it finds any."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel)


class RuntimeCluster(Strict):
    """Where the machines of a Shoot are."""

    namespace: str = Field(min_length=1)
    kubeconfig: str | None = None
    """A file; without it, the cluster in which one runs."""


class LoadBalancerConfig(Strict):
    image: str | None = None
    """Envoy's."""


class CloudProviderConfig(Strict):
    api_version: Literal["local.provider.gardener.cloud/v1alpha1"]
    kind: Literal["CloudProviderConfig"]
    runtime_cluster: RuntimeCluster | None = None
    """Only Shoots have one."""
    load_balancer: LoadBalancerConfig = LoadBalancerConfig()


def load(file: Path) -> CloudProviderConfig:
    """The configuration in a file. Malformed, with field, value and remedy, if it is none."""
    try:
        return parsed(file.read_bytes(), str(file))
    except OSError as error:
        raise Malformed(f"{file} cannot be read: {error}; set loadbalancer.cloud_config to a file") from error


def parsed(text: bytes, what: str) -> CloudProviderConfig:
    """The configuration in a text; `what` names it in errors."""
    try:
        content = yaml.load(text, _Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Malformed(f"{what} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise Malformed(f"{what} has to be a mapping with apiVersion and kind, not {content!r:.50}")
    try:
        return CloudProviderConfig.model_validate(content)
    except ValidationError as error:
        raise Malformed(f"{what}: " + "; ".join(map(explained, error.errors()))) from error


def explained(error: object) -> str:
    """The error in one field, and the remedy."""
    assert isinstance(error, dict)
    field, value = ".".join(map(str, error["loc"]))[:_LONGEST] or "it", error["input"]
    match error["type"]:
        case "extra_forbidden":
            return f"{field} is unknown (it is {value!r:.50}): take it out, or correct its name"
        case "missing":
            return f"{field} is missing: add it"
        case "string_too_short":
            return f"{field} is empty: give it a value"
        case "literal_error":
            return f"{field} is {value!r:.50}: make it {error['ctx']['expected']}"
        case "string_type":
            return f"{field} is {value!r:.50}: write a text, in quotes"
        case "dict_type" | "model_type":
            return f"{field} is {value!r:.50}: make it a mapping"
        case "list_type" | "sequence_str" | "is_instance_of":
            return f"{field} is {value!r:.50}: make it a list"
        case _:
            return f"{field} is {value!r:.50}: {error['msg']}"


class _Loader(yaml.SafeLoader):
    """Refuses keys that are given twice, as strict decoding does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{key} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)
