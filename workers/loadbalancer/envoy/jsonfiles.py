"""JSON files of earlier versions of windowbox: they are read until their Envoy has been replaced."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from workers.loadbalancer.envoy import bootstrap, protobuf
from workers.loadbalancer.envoy.attachments import Running

CLUSTERS = "cds.json"
LISTENERS = "lds.json"


def binary(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files, with JSON converted to binary. A binary file is newer than the JSON file beside it: it was
    written after the Envoy that reads JSON was adopted."""
    converted = {}
    for name, file in files.items():
        binary = name.removesuffix(".json") + ".pb"
        is_resources = name in (CLUSTERS, LISTENERS) or name.startswith("eds_")
        if not name.endswith(".json") or not is_resources or binary in files:
            continue
        found = orjson.loads(file)
        for one in found["resources"]:
            if "eds_cluster_config" in one:
                source = one["eds_cluster_config"]["eds_config"]["path_config_source"]
                source["path"] = source["path"].removesuffix(".json") + ".pb"
        entries = b"".join(map(protobuf.entry, found["resources"]))
        converted[binary] = protobuf.response(found["version_info"], entries)
    return {**converted, **files}


def are_whole(files: Mapping[str, bytes]) -> bool:
    """Whether an Envoy can be started with these files."""
    return files.keys() >= {bootstrap.CLUSTERS, bootstrap.LISTENERS} or files.keys() >= {CLUSTERS, LISTENERS}


async def are_read_by(running: Running) -> bool:
    """Whether the Envoy reads JSON files, by its bootstrap. It does not notice binary ones."""
    return CLUSTERS.encode() in (await running.read(bootstrap.BOOTSTRAP) or b"")


async def read(running: Running) -> dict[str, bytes]:
    """The JSON files of an Envoy; empty if it has none."""
    clusters = await running.read(CLUSTERS)
    if clusters is None:
        return {}
    eds = [one["name"] for one in orjson.loads(clusters)["resources"] if one["type"] == "EDS"]
    names = [LISTENERS, *(bootstrap.endpoints_file(name).removesuffix(".pb") + ".json" for name in eds)]
    others = {name: await running.read(name) for name in names}
    return {CLUSTERS: clusters, **{name: file for name, file in others.items() if file is not None}}


async def retire(running: Running, no_listeners: bytes) -> None:
    """Close the listeners of an Envoy that reads JSON files."""
    if await running.read(LISTENERS) is not None:
        empty = {"version_info": protobuf.version(no_listeners), "resources": []}
        await running.write({LISTENERS: orjson.dumps(empty)})
