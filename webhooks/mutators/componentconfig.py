"""Sets one value in the configuration of a kubelet or kube-proxy, and keeps all else as it is written.

The parsed document is edited, so that unknown fields, the order of keys and the spelling of values stay. Text
that gardenlet writes changes in this value only: PyYAML and Go's library both lay it out as libyaml does.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import yaml
from yaml.resolver import BaseResolver

_LONGEST = 256 * 1024
_DEEPEST = 64
_MOST_EVENTS = 5_000
"""Scalars, and begins and ends of lists and mappings: the parser takes long for each."""
_REMEMBERED = 64
"""Results that are kept: all machines of a worker pool have the same configuration."""

_UNTYPED = "untyped"
_NULL = re.compile(r"|~|null|Null|NULL")
_BOOL = re.compile(r"y|n|yes|no|true|false|on|off", re.IGNORECASE)
_INTEGER = re.compile(r"[-+]?[0-9][0-9a-fxo_]*(?:\.0*)?", re.IGNORECASE | re.ASCII)


class Unreadable(Exception):
    """The text is not a configuration of the expected kind; the message says why."""


class _Untyped(BaseResolver):
    """Scalars without a tag have no type, so that they are written as they were read."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            return _UNTYPED
        return str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]


class _Loader(_Untyped, yaml.CSafeLoader): ...


class _Dumper(_Untyped, yaml.CSafeDumper): ...


@lru_cache(maxsize=_REMEMBERED)
def allow_swap(text: str) -> str:
    """The kubelet's configuration with `failSwapOn: false`, so that it starts although the host swaps.

    The Shoot's own setting is overruled: its machines cannot turn off the swap of the host.
    """
    root = _document(text)
    changed = _identify(root, "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration")
    found = _field(root, "failSwapOn")
    if found is not None and not _is_plain(found, _BOOL) and not _is_plain(found, _NULL):
        raise _wrong("failSwapOn", found, "true or false")
    changed |= _set(root, "failSwapOn", "false")
    return _written(root) if changed else text


@lru_cache(maxsize=_REMEMBERED)
def keep_conntrack(text: str) -> str:
    """kube-proxy's configuration with `conntrack.maxPerCore: 0`, so that the host's limit stays.

    kube-proxy cannot write nf_conntrack_max inside the container that a machine is.
    """
    root = _document(text)
    changed = _identify(root, "kubeproxy.config.k8s.io/v1alpha1", "KubeProxyConfiguration")
    conntrack = _field(root, "conntrack")
    if conntrack is None or _is_plain(conntrack, _NULL):
        conntrack = yaml.MappingNode("tag:yaml.org,2002:map", [])
        changed = _set(root, "conntrack", conntrack)
    if not isinstance(conntrack, yaml.MappingNode):
        raise _wrong("conntrack", conntrack, "a mapping")
    found = _field(conntrack, "maxPerCore")
    if found is not None and not _is_plain(found, _INTEGER) and not _is_plain(found, _NULL):
        raise _wrong("conntrack.maxPerCore", found, "a whole number")
    changed |= _set(conntrack, "maxPerCore", "0")
    return _written(root) if changed else text


def _document(text: str) -> yaml.MappingNode:
    """The first document of the text; an empty mapping if there is none."""
    if len(text) > _LONGEST:
        raise Unreadable(f"it is longer than {_LONGEST // 1024} KiB")
    depth, events = 0, 0
    try:
        # Check aliases and depth before nodes are composed: libyaml's composer recurses without a limit.
        for event in yaml.parse(text, Loader=_Loader):
            events += 1
            if events > _MOST_EVENTS:
                raise Unreadable(f"it has more than {_MOST_EVENTS // 2} values")
            match event:
                case yaml.AliasEvent():
                    # The kubelet would expand them: a few lines can stand for more than fits in memory.
                    raise Unreadable("aliases are not supported")
                case yaml.CollectionStartEvent():
                    depth += 1
                    if depth > _DEEPEST:
                        raise Unreadable(f"nested deeper than {_DEEPEST} levels")
                case yaml.CollectionEndEvent():
                    depth -= 1
                case yaml.DocumentEndEvent():
                    break
        root = next(yaml.compose_all(text, Loader=_Loader), None)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise Unreadable(f"{where}{getattr(error, 'problem', None) or 'unreadable characters'}") from error
    except UnicodeError as error:
        raise Unreadable("not valid UTF-8") from error
    if root is None or _is_plain(root, _NULL):
        root = yaml.MappingNode("tag:yaml.org,2002:map", [])
    if not isinstance(root, yaml.MappingNode):
        raise Unreadable("it has to be a mapping with the fields of the configuration")
    return yaml.MappingNode(root.tag, root.value, flow_style=False)


def _identify(root: yaml.MappingNode, api_version: str, kind: str) -> bool:
    """Set apiVersion and kind where they are missing. Unreadable if they name another kind."""
    changed = False
    for name, wanted in (("apiVersion", api_version), ("kind", kind)):
        found = _field(root, name)
        if found is None or found.value == "" or _is_plain(found, _NULL):
            changed |= _set(root, name, wanted)
        elif found.value != wanted:
            raise Unreadable(f"{name} is {found.value!r:.50}: make it {wanted}")
    return changed


def _field(mapping: yaml.MappingNode, name: str) -> yaml.Node | None:
    """The value of the field; the last one if the key is repeated, as in Go."""
    found = None
    for key, value in mapping.value:
        if key.value == "<<":
            raise Unreadable("merge keys (<<) are not supported")
        if key.value == name:
            found = value
    return found


def _set(mapping: yaml.MappingNode, name: str, value: str | yaml.MappingNode) -> bool:
    """Set the field; a new one goes where the alphabet puts it. False if it has this value."""
    node = yaml.ScalarNode(_UNTYPED, value) if isinstance(value, str) else value
    places = [at for at, (key, _) in enumerate(mapping.value) if key.value == name]
    if not places:
        after = (at for at, (key, _) in enumerate(mapping.value) if str(key.value) > name)
        at = next(after, len(mapping.value))
        mapping.value.insert(at, (yaml.ScalarNode(_UNTYPED, name), node))
        return True
    key, found = mapping.value[places[-1]]
    mapping.value[places[-1]] = (key, node)
    return not (_is_plain(found) and found.value == value)


def _is_plain(node: yaml.Node, pattern: re.Pattern[str] | None = None) -> bool:
    """Whether the node is a scalar without quotes and tag that fits the pattern."""
    if not isinstance(node, yaml.ScalarNode) or node.style or node.tag != _UNTYPED:
        return False
    return pattern is None or pattern.fullmatch(node.value) is not None


def _wrong(where: str, found: yaml.Node, wanted: str) -> Unreadable:
    shown = f" is {found.value!r:.50}: it" if isinstance(found, yaml.ScalarNode) else ""
    return Unreadable(f"{where}{shown} has to be {wanted}")


def _written(root: yaml.Node) -> str:
    text: str = yaml.serialize(root, Dumper=_Dumper, allow_unicode=True)
    return text.removesuffix("...\n")
