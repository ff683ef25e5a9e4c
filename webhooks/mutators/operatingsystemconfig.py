"""OperatingSystemConfigs of nodes: the kubelet starts although the host swaps."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator

from webhooks import clustershoots
from webhooks.mutators import componentconfig
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
    cluster = context.looked_up(clustershoots.lookup(namespace(review)), missing)
    shoot = clustershoots.shoot(cluster, namespace(review))
    pool = part(review.object, "metadata", "labels").get(_POOL)
    with about(clustershoots.shoot_in(namespace(review))):
        # The versions have no effect on the result, but Gardener denies those that it cannot parse.
        _check_version("spec.kubernetes.version", text(part(shoot, "spec", "kubernetes"), "version"))
        for index, worker in enumerate(clustershoots.workers(shoot)):
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
        return put(unit, normalised(text(unit, "content")), "content")
    except BadUnit as error:
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


_LONGEST = 64 * 1024
_LINE_LIMIT = 2048
"""systemd would cut lines of so many bytes off."""

# As Go's unicode.IsSpace has it; Python's own set contains four separators more.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


class BadUnit(Exception):
    """systemd could not read the unit as it is meant."""


def normalised(text: str) -> str:
    """The unit with each section once, no comments, and a blank line between sections."""
    if len(text) > _LONGEST:
        raise BadUnit(f"it is longer than {_LONGEST // 1024} KiB")
    if any(len(line.encode(errors="replace")) >= _LINE_LIMIT for line in text.split("\n")):
        raise BadUnit(f"a line has {_LINE_LIMIT} bytes or more")
    sections: dict[str, list[str]] = {}
    for section, name, value in _Lexer(text).options():
        sections.setdefault(section, []).append(f"{name}={value}\n")
    return "\n".join(f"[{name}]\n{''.join(options)}" for name, options in sections.items())


class _Lexer:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def options(self) -> Iterator[tuple[str, str, str]]:
        """Section, name and value of each option, in order."""
        section = None
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "[":
                end = self._text.find("]", self._at)
                if end < 0:
                    raise BadUnit("a section's name has no end")
                section = self._text[self._at + 1 : end]
                self._at = end + 1
                if garbage := self._line().strip(_SPACE):
                    raise BadUnit(f"after the name of section {section!r:.50} stands {garbage!r:.50}")
            elif char in "#;":
                while self._at < len(self._text) and self._line().removesuffix(" ").endswith("\\"):
                    pass  # a comment that ends in a backslash goes on
            elif section is not None and char not in _SPACE:
                line = self._text[self._at : self._line_end()]
                name, equals, _ = line.partition("=")
                if not equals or "\r" in name:
                    raise BadUnit(f"the line {line.strip(_SPACE)!r:.50} has no =")
                self._at += len(name) + 1
                value, continued = "", True
                while continued:  # continued lines belong to the value as they are written
                    line = self._line()
                    if filled := bool(line.strip(_SPACE)):
                        value += line
                    if continued := filled and line.endswith("\\"):
                        value += "\n"
                ending = "\n" if value.endswith("\n") else ""
                yield section, name.strip(_SPACE), value.strip(_SPACE) + ending
            else:
                self._at += 1

    def _line(self) -> str:
        """The rest of the line; the next one begins after it."""
        end = self._line_end()
        line, ended = self._text[self._at : end], end == len(self._text)
        self._at = end if ended else end + 1
        return line.removesuffix("\r") if ended else line

    def _line_end(self) -> int:
        end = self._text.find("\n", self._at)
        return end if end >= 0 else len(self._text)
