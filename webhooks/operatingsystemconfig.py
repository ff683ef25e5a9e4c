"""Kubelets in machines: they start although the host swaps."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable

from webhooks import clusters
from webhooks.configs import componentconfig, units
from webhooks.review import Context, Denied, Review
from webhooks.shapes import namespace, objects, part, put, text
from windowbox.models.objects import Json

_POOL = "worker.gardener.cloud/pool"
_UNIT = "kubelet.service"
_KUBELET = "/var/lib/kubelet/config/kubelet"
_SYSCTL = "/etc/sysctl.d/99-k8s-general.conf"
_LONGEST_VERSION = 100
_SEMVER = re.compile(r"v?\d+(\.\d+){0,2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", re.ASCII)


def for_machines(review: Review, context: Context) -> Json:
    """The OperatingSystemConfig with its kubelet settings for this provider. The first error denies."""
    missing = f"could not get cluster for namespace '{namespace(review)}': "
    _check_version(review, clusters.shoot(context.looked_up(missing), namespace(review)))
    if review.old_object is not None:
        # So does Gardener: what is stored has to be readable, too.
        _rewritten(review.old_object)
    return _rewritten(review.object)


def _rewritten(config: Json) -> Json:
    spec = part(config, "spec")
    files = _edited(objects(spec, "files"), "path", _KUBELET, _kubelet)
    files = _edited(files, "path", _SYSCTL, _sysctl)
    unit_list = _edited(objects(spec, "units"), "name", _UNIT, _unit)
    for field, entries in (("files", files), ("units", unit_list)):
        if entries:
            config = put(config, entries, "spec", field)
    return config


def _check_version(review: Review, shoot: Json) -> None:
    pool = part(review.object, "metadata", "labels").get(_POOL)
    of_pool = (part(one, "kubernetes") for one in clusters.workers(shoot) if one.get("name") == pool)
    general = text(part(shoot, "spec", "kubernetes"), "version")
    for version in (general, text(next(of_pool, {}), "version") or general):
        if len(version) > _LONGEST_VERSION or not _SEMVER.fullmatch(version):
            raise Denied(f"Kubernetes version {version!r:.50} of the Shoot is not a semantic version")


def _edited(found: list[Json], key: str, value: str, edit: Callable[[Json], Json]) -> list[Json]:
    """The list with the first entry of that name edited."""
    at = next((at for at, one in enumerate(found) if one.get(key) == value), None)
    return found if at is None else [*found[:at], edit(found[at]), *found[at + 1 :]]


def _unit(unit: Json) -> Json:
    if unit.get("content") is None:
        return unit
    try:
        return put(unit, units.normalised(text(unit, "content")), "content")
    except units.BadUnit as error:
        raise Denied(f"unit {_UNIT} cannot be read: {error}") from error


def _kubelet(file: Json) -> Json:
    try:
        return _recoded(file, componentconfig.for_machine)
    except componentconfig.Unreadable as error:
        raise Denied(f"file {_KUBELET} is not a KubeletConfiguration: {error}") from error


def _sysctl(file: Json) -> Json:
    return _recoded(file, str) if text(part(file, "content", "inline"), "data") else file


def _recoded(file: Json, edit: Callable[[str], str]) -> Json:
    """The file with its inline text edited, in the encoding that it had."""
    if part(file, "content").get("inline") is None:
        return file
    inline = part(file, "content", "inline")
    encoding, data = text(inline, "encoding"), text(inline, "data")
    match encoding:
        case "":
            edited = edit(data)
        case "b64":
            edited = base64.b64encode(edit(_decoded(file, data)).encode()).decode()
        case _:
            raise Denied(
                f"file {text(file, 'path')}: encoding {encoding!r:.50} is unknown: make it b64 or empty"
            )
    return put(file, edited, "content", "inline", "data")


def _decoded(file: Json, data: str) -> str:
    try:
        return base64.b64decode(data.replace("\r", "").replace("\n", ""), validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise Denied(f"file {text(file, 'path')}: its data is not base64 of a text: {error}") from error
