"""The spec of an OperatingSystemConfig, parsed and validated. Pure."""

from __future__ import annotations

import binascii
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice

from windowbox.errors import Malformed
from windowbox.models.gardener.operatingsystemconfig import (
    Containerd,
    File,
    OperatingSystemConfigSpec,
    Registry,
    Unit,
)
from windowbox.models.objects import Object, from_base64
from workers.core.lifecycle import actuators
from workers.kinds.operatingsystemconfig.oscscripts import segments

_MAX_PROBLEMS = 5
"""Problems reported at once."""


def parsed(object: Object) -> OperatingSystemConfigSpec:
    """The valid spec, or Malformed with the first problems."""
    spec = actuators.parsed_spec(OperatingSystemConfigSpec, object)
    if found := list(islice(problems(spec), _MAX_PROBLEMS)):
        raise Malformed("; ".join(found))
    return spec


PROVISION, RECONCILE = "provision", "reconcile"
CAPABILITIES = ("pull", "resolve", "push")

_UNIT = re.compile(r"[A-Za-z0-9:_\\@][A-Za-z0-9:_.\\@-]{0,254}")
"""The names that systemd allows, without a dash or a dot at the beginning, which systemctl interprets."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_KEY = re.compile(r"[A-Za-z0-9._-]{1,253}")
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_UPSTREAM = re.compile(rf"_default|({_LABEL}(\.{_LABEL})*|\[[0-9A-Fa-f:.]+\])(:(?P<port>\d{{1,5}}))?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]*")


def problems(spec: OperatingSystemConfigSpec) -> Iterator[str]:
    """All problems of the spec."""
    if spec.purpose not in (PROVISION, RECONCILE):
        yield f"unknown purpose: {spec.purpose}; set spec.purpose to {PROVISION} or {RECONCILE}"
        return
    provision = spec.purpose == PROVISION
    files = spec.files or []
    for number, file in enumerate(files):
        yield from _file(f"spec.files[{number}]", file, provision=provision)
    yield from _repeated_paths(files)
    paths = {file.path for file in files}
    for number, unit in enumerate(spec.units or ()):
        yield from _unit(f"spec.units[{number}]", unit, paths)
    containerd = spec.cri_config.containerd if spec.cri_config else None
    if containerd and provision:
        yield (
            "spec.criConfig.containerd is set, but a new machine has no containerd to configure yet: "
            f"take it out, or use the purpose {RECONCILE}"
        )
    elif containerd:
        yield from _containerd("spec.criConfig.containerd", containerd)
    version = spec.in_place_updates.operating_system_version if spec.in_place_updates else None
    if version is not None and not _VERSION.fullmatch(version):
        yield (
            f"spec.inPlaceUpdates.operatingSystemVersion is {version!r:.80}: "
            "give it a version of letters, digits and . _ + ~ -"
        )


def unfit_for_raw(data: bytes) -> bool:
    """Whether a script cannot hold the data unencoded: no shell can hold a NUL."""
    return b"\0" in data


RAW_REMEDY = "holds a NUL byte, which no script can transmit unencoded: set transmitUnencoded to false"


def decoded(data: str, encoding: str) -> bytes:
    """The data of a file. ValueError if it is not what its encoding says."""
    return from_base64(data) if encoding == "b64" else data.encode()


def is_secret_name(name: str) -> bool:
    """Whether a Secret can have this name. Another text could lead to another object by its path."""
    return bool(_NAME.fullmatch(name)) and ".." not in name


def _file(where: str, file: File, *, provision: bool) -> Iterator[str]:
    yield from _path(f"{where}.path", file.path)
    if file.permissions is not None and not 0 <= file.permissions <= 0o7777:
        yield (
            f"{where}.permissions is {file.permissions}: "
            "give it a number from 0 to 4095, such as 420, which is 0644 in octal"
        )
    yield from _content(f"{where}.content", file, provision=provision)


def _path(where: str, path: str) -> Iterator[str]:
    if not path:
        yield f"{where} is empty: give it an absolute path"
    elif _CONTROL.search(path):
        yield f"{where} is {path!r:.80}: take out the line break or control character"
    elif not path.startswith("/") or ".." in segments(path):
        yield f"{where} is {path!r:.80}: make it an absolute path without '..'"
    elif path.endswith(("/", "/.")):
        yield f"{where} is {path!r:.80}, which names a folder: add the name of a file"


def _content(where: str, file: File, *, provision: bool) -> Iterator[str]:
    inline, secret, image = file.content.inline, file.content.secret_ref, file.content.image_ref
    given = [name for name, one in (("inline", inline), ("secretRef", secret), ("imageRef", image)) if one]
    if len(given) != 1:
        found = " and ".join(given) or "nothing"
        yield f"{where} holds {found}: give it just one of inline, secretRef and imageRef"
        return
    if image and provision:
        yield (
            f"{where}.imageRef is {image.image!r:.80}, but a new machine has nothing to unpack images with: "
            "use inline or secretRef"
        )
    if secret and not is_secret_name(secret.name):
        yield f"{where}.secretRef.name is {secret.name!r:.80}: give it the name of a Secret"
    if secret and not _KEY.fullmatch(secret.data_key):
        yield f"{where}.secretRef.dataKey is {secret.data_key!r:.80}: give it a key of the Secret"
    if inline:
        raw = provision and bool(file.content.transmit_unencoded)
        yield from _inline(f"{where}.inline", inline.data, inline.encoding, raw=raw)


def _inline(where: str, data: str, encoding: str, *, raw: bool) -> Iterator[str]:
    if encoding not in ("", "b64"):
        yield f"{where}.encoding is {encoding!r:.80}: set it to b64, or leave it empty"
        return
    if not data:
        yield f"{where}.data is empty: give the file some content"
    try:
        if raw and unfit_for_raw(decoded(data, encoding)):
            yield f"{where}.data {RAW_REMEDY}"
        else:
            decoded(data, encoding)
    except (binascii.Error, ValueError):
        yield f"{where}.data is not base64: encode it, or leave encoding empty"


def _repeated_paths(files: list[File]) -> Iterator[str]:
    """A path may occur more than once only if each of its files is for another host."""
    by_path: dict[str, list[tuple[int, str | None]]] = defaultdict(list)
    for number, file in enumerate(files):
        by_path["/".join(segments(file.path))].append((number, file.host_name))
    for found in by_path.values():
        seen: set[str | None] = set()
        for number, host in found:
            if len(found) > 1 and (not host or host in seen):
                whose = f"for host {host!r:.80}" if host else "without a hostName"
                yield (
                    f"spec.files[{number}].path is {files[number].path!r:.80}, which is there more than "
                    f"once, {whose}: take one out, or give each a hostName of its own"
                )
            seen.add(host)


def _unit(where: str, unit: Unit, paths: set[str]) -> Iterator[str]:
    if not _UNIT.fullmatch(unit.name):
        yield (
            f"{where}.name is {unit.name!r:.80}: give it the name of a unit, "
            "of letters, digits and : _ . \\ @ -, at most 255"
        )
    for number, drop_in in enumerate(unit.drop_ins or ()):
        at = f"{where}.dropIns[{number}]"
        if drop_in.name in ("", ".", "..") or "/" in drop_in.name or _CONTROL.search(drop_in.name):
            yield f"{at}.name is {drop_in.name!r:.80}: give it the name of a file, such as 10-limits.conf"
        if not drop_in.content:
            yield f"{at}.content is empty: give it content, or take the drop-in out"
    for number, path in enumerate(unit.file_paths or ()):
        if path not in paths:
            yield f"{where}.filePaths[{number}] is {path!r:.80}: name a file of spec.files"


def _containerd(where: str, containerd: Containerd) -> Iterator[str]:
    if not containerd.sandbox_image:
        yield f"{where}.sandboxImage is empty: name the image of Pods' sandboxes"
    seen: set[str] = set()
    for number, registry in enumerate(containerd.registries or ()):
        at = f"{where}.registries[{number}]"
        yield from _registry(at, registry)
        if registry.upstream in seen:
            yield f"{at}.upstream is {registry.upstream!r:.80}, which is there already: take one out"
        seen.add(registry.upstream)
    for number, plugin in enumerate(containerd.plugins or ()):
        at = f"{where}.plugins[{number}]"
        if plugin.op not in (None, "add", "remove"):
            yield f"{at}.op is {plugin.op!r:.80}: set it to add or remove"
        if plugin.op == "remove" and plugin.values is not None:
            yield f"{at}.values is set, but op is remove: take the values out"


def _registry(where: str, registry: Registry) -> Iterator[str]:
    upstream = _UPSTREAM.fullmatch(registry.upstream)
    if not upstream or not 0 < int(upstream["port"] or 443) < 65536:
        yield f"{where}.upstream is {registry.upstream!r:.80}: give it host, host:port or _default"
    for number, host in enumerate(registry.hosts or ()):
        for capability in host.capabilities or ():
            if capability not in CAPABILITIES:
                yield (
                    f"{where}.hosts[{number}].capabilities: {capability!r:.80} is none of "
                    f"{', '.join(CAPABILITIES)}; take it out"
                )
