"""Files as windowbox wrote them before they were binary: JSON, read until their Envoy has been replaced."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from workers.loadbalancer.envoy import bootstrap, protobuf
from workers.loadbalancer.envoy.attachments import Running

CLUSTERS = "cds.json"
LISTENERS = "lds.json"


def binary(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files, with those that are binary today in that form. What stands there in both was written last as
    binary: an Envoy that reads JSON was adopted, and some of its files have changed since."""
    made = {_today(name): _converted(file) for name, file in files.items() if _is_earlier(name, files)}
    return {**made, **files}


def are_whole(files: Mapping[str, bytes]) -> bool:
    """Whether an Envoy can be started with these files."""
    today, before = {bootstrap.CLUSTERS, bootstrap.LISTENERS}, {CLUSTERS, LISTENERS}
    return files.keys() >= today or files.keys() >= before


async def are_read_by(running: Running) -> bool:
    """Whether the Envoy reads such files, by its bootstrap: it does not notice what is written today."""
    return CLUSTERS.encode() in (await running.read(bootstrap.BOOTSTRAP) or b"")


async def read(running: Running) -> dict[str, bytes]:
    """The files of an Envoy that has such files; empty if it has none."""
    clusters = await running.read(CLUSTERS)
    if clusters is None:
        return {}
    found = orjson.loads(clusters)["resources"]
    names = [_before(bootstrap.endpoints_file(one["name"])) for one in found if one["type"] == "EDS"]
    others = {name: await running.read(name) for name in [LISTENERS, *names]}
    return {CLUSTERS: clusters, **{name: file for name, file in others.items() if file is not None}}


async def retire(running: Running, no_listeners: bytes) -> None:
    """Tell an Envoy that has such files to listen no more."""
    if await running.read(LISTENERS) is not None:
        empty = {"version_info": protobuf.version(no_listeners), "resources": []}
        await running.write({LISTENERS: orjson.dumps(empty)})


def _is_earlier(name: str, files: Mapping[str, bytes]) -> bool:
    """Whether this is JSON that has not been written as binary since."""
    return name != _today(name) and _today(name) not in files


def _converted(file: bytes) -> bytes:
    found = orjson.loads(file)
    for one in found["resources"]:
        if "eds_cluster_config" in one:
            source = one["eds_cluster_config"]["eds_config"]["path_config_source"]
            source["path"] = source["path"].removesuffix(".json") + ".pb"
    return protobuf.response(found["version_info"], b"".join(map(protobuf.entry, found["resources"])))


def _today(name: str) -> str:
    is_binary = name in (CLUSTERS, LISTENERS) or name.startswith("eds_")
    return name.removesuffix(".json") + ".pb" if is_binary and name.endswith(".json") else name


def _before(name: str) -> str:
    return name.removesuffix(".pb") + ".json"
