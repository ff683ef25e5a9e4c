"""Hints with kubectl, in messages and docs: they name the namespace of what they look at."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from windowbox.kinds import RESOURCES

ROOT = Path(__file__).parents[3]
SOURCES = ("bus", "commands", "patchers", "sandbox", "tools", "watchers", "webhooks", "windowbox", "workers")
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/**/*.md",
    "examples/*.yaml",
    "deploy/**/*.yaml",
    "deploy/**/*.txt",
)
VERBS = (
    *("annotate", "attach", "cp", "debug", "delete", "describe", "edit", "exec", "get", "label", "logs"),
    *("patch", "port-forward", "replace", "restart", "scale", "status", "wait"),
)
"""Those that look at an object, or change it. What `create` and `apply` make is where its user works."""
CLUSTER_WIDE = {
    *(
        "clusterroles",
        "clusterrolebindings",
        "controllerinstallations",
        "controllerregistrations",
        "extension",
    ),
    *("customresourcedefinitions", "crd", "namespace", "node", "--raw"),
    *(one.plural for one in RESOURCES.values() if not one.namespaced),
    *(one.kind.lower() for one in RESOURCES.values() if not one.namespaced),
}
PLACED = re.compile(r"(^|\s)(-n|--namespace|-A|--all-namespaces|-f|--filename)\b")


def unplaced(text: str) -> list[str]:
    """The commands in `text` that look at an object in a namespace, without the namespace."""
    found = []
    for before, quoted, plain in re.findall(r"(`?)\bkubectl(?:(?<=`kubectl)([^`]*)`|\s([^\n`]*))", text):
        words = (quoted if before else plain).split()
        named = [word for word in words if not word.startswith("-") or word == "--raw"]
        named = named[1:] if named[:1] == ["rollout"] else named
        if len(named) < 2 or named[0] not in VERBS or PLACED.search(" ".join(words)):
            continue
        kinds = named[1].partition("/")[0].split(",")
        if not CLUSTER_WIDE.issuperset(kinds):
            found.append(" ".join(["kubectl", *words]))
    return found


def strings(tree: ast.AST) -> Iterator[str]:
    """All strings of a module; values in them are written as X."""
    match tree:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts)
        case _:
            for child in ast.iter_child_nodes(tree):
                yield from strings(child)


@pytest.mark.parametrize("folder", SOURCES)
def test_hints_in_messages_name_the_namespace(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    found = {
        str(path.relative_to(ROOT)): [
            hint for text in strings(ast.parse(path.read_text())) for hint in unplaced(text)
        ]
        for path in paths
    }
    assert {path: hints for path, hints in found.items() if hints} == {}


@pytest.mark.parametrize("pattern", PAGES)
def test_hints_in_docs_name_the_namespace(pattern: str) -> None:
    paths = sorted(ROOT.glob(pattern))
    assert paths
    found = {str(path.relative_to(ROOT)): unplaced(path.read_text()) for path in paths}
    assert {path: hints for path, hints in found.items() if hints} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see its log: kubectl logs X --previous", ["kubectl logs X --previous"]),
        ("`kubectl exec X -- journalctl` says it", ["kubectl exec X -- journalctl"]),
        ("`kubectl get\npods` says it", ["kubectl get pods"]),
        ("see kubectl -n X logs Y", []),
        ("see kubectl get pod -n X Y", []),
        ("$ kubectl get dnsrecords,services -A", []),
        ("`kubectl get node X` says it", []),
        ("`kubectl get node,pods` says it", ["kubectl get node,pods"]),
        ("a Pod for `kubectl exec`, which people use", []),
        ("run kubectl certificate approve X there", []),
        ("kubectl apply -f examples/bastion.yaml", []),
    ],
)
def test_hints_are_found(text: str, found: list[str]) -> None:
    assert unplaced(text) == found
