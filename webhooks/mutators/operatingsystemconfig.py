"""OperatingSystemConfigs of nodes: the kubelet starts although the host swaps."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable

from webhooks import clusters
from webhooks.mutators import componentconfig, units
from webhooks.review import OLD_OBJECT, Context, Denied, Review, about
from webhooks.shapes import namespace, objects, part, put, text
from windowbox.models.objects import Json, from_base64

_POOL = "worker.gardener.cloud/pool"
_UNIT = "kubelet.service"
_KUBELET = "/var/lib/kubelet/config/kubelet"
_SYSCTL = "/etc/sysctl.d/99-k8s-general.conf"
_LONGEST_VERSION = 100
_PRERELEASE = r"(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)"
_BUILD = r"[0-9A-Za-z-]+"
_SEMVER = re.compile(
    rf"v?\d{{1,19}}(\.\d{{1,19}}){{0,2}}(-{_PRERELEASE}(\.{_PRERELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?",
    re.ASCII,
)

Edit = Callable[[Json], Json | None]
"""Returns a unit or file with its text edited; None if it has no inline text."""


def for_machines(review: Review, context: Context) -> Json:
    """The OperatingSystemConfig with the kubelet's settings of this provider. The first error denies."""
    missing = f"could not get cluster for namespace '{namespace(review)}': "
    shoot = clusters.shoot(context.looked_up(missing), namespace(review))
    pool = part(review.object, "metadata", "labels").get(_POOL)
    with about(clusters.shoot_in(namespace(review))):
        # The versions have no effect on the result, but Gardener denies those that it cannot parse.
        _check_version("spec.kubernetes.version", text(part(shoot, "spec", "kubernetes"), "version"))
        for index, worker in enumerate(clusters.workers(shoot)):
            if pool is not None and worker.get("name") == pool:
                kubernetes = part(worker, "kubernetes")
                if kubernetes.get("version") is not None:
                    where = f"spec.provider.workers[{index}].kubernetes.version of worker pool {pool!r:.70}"
                    _check_version(where, text(kubernetes, "version"))
                break
    config = review.object
    for field, key, name, edit in _EDITS:
        entries = objects(part(config, "spec"), field)
        at = next((at for at, one in enumerate(entries) if one.get(key) == name), None)
        if at is None or (edited := edit(entries[at])) is None:
            continue
        # Like Gardener, deny if the stored entry that is replaced cannot be edited.
        with about(OLD_OBJECT):
            stored = objects(part(review.old_object or {}, "spec"), field)
            try:
                if found := next((one for one in stored if one.get(key) == name), None):
                    edit(found)
            except Denied as error:
                remedy = f"take the entry out of spec.{field} in one update, and add it in another"
                raise Denied(f"{error}; to repair it, {remedy}") from error
        config = put(config, [*entries[:at], edited, *entries[at + 1 :]], "spec", field)
    return config


def _check_version(where: str, version: str) -> None:
    if len(version) > _LONGEST_VERSION or not _SEMVER.fullmatch(version):
        raise Denied(f"{where} is {version!r:.50}: make it a semantic version such as 1.36.3")


def _edit_unit(unit: Json) -> Json | None:
    if unit.get("content") is None:
        return None
    try:
        return put(unit, units.normalised(text(unit, "content")), "content")
    except units.BadUnit as error:
        raise Denied(f"unit {_UNIT} cannot be read: {error}") from error


def _edit_kubelet(file: Json) -> Json | None:
    try:
        return _edit_inline(file, componentconfig.allow_swap)
    except componentconfig.Unreadable as error:
        raise Denied(f"file {_KUBELET} is not a KubeletConfiguration: {error}") from error


def _edit_inline(file: Json, edit: Callable[[str], str]) -> Json | None:
    """The file with its inline text edited, in the same encoding."""
    if part(file, "content").get("inline") is None:
        return None
    inline = part(file, "content", "inline")
    encoding, data = text(inline, "encoding"), text(inline, "data")
    match encoding:
        case "":
            edited = edit(data)
        case "b64":
            try:
                decoded = from_base64(data).decode()
            except ValueError as error:
                raise Denied(
                    f"file {text(file, 'path')}: its data is not base64 of a text: {error}"
                ) from error
            edited = base64.b64encode(edit(decoded).encode()).decode()
        case _:
            raise Denied(
                f"file {text(file, 'path')}: encoding {encoding!r:.50} is unknown: make it b64 or empty"
            )
    return put(file, edited, "content", "inline", "data")


_EDITS: tuple[tuple[str, str, str, Edit], ...] = (
    ("units", "name", _UNIT, _edit_unit),
    ("files", "path", _KUBELET, _edit_kubelet),
    # Only its base64 text changes, to the usual form.
    ("files", "path", _SYSCTL, lambda file: _edit_inline(file, str)),
)
"""Field of the spec, key and name of an entry, and the edit of the first entry of that name."""
