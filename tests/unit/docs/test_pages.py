"""What all pages have in common: files, links, commands and hints exist, and cells of tables are short."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from commands.cli import cli
from windowbox.kinds import RESOURCES

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_QUOTED = re.compile(r"(?:`|^[$#] (?:\S+ )?)windowbox ([^`\n]*)", re.MULTILINE)
_MAKE = re.compile(r"(?:`|^[$#] )make ([a-z-]+)", re.MULTILINE)
_FILE = re.compile(
    r"`((?:bus|deploy|docs|examples|patchers|tests|tools|watchers|webhooks|windowbox|workers)/[\w./-]+\.\w+)`"
)
_LINK = re.compile(r"\]\([^)]*\)")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
SOURCES = (
    "bus",
    "clouds",
    "commands",
    "patchers",
    "sandbox",
    "tools",
    "ui",
    "watchers",
    "webhooks",
    "windowbox",
    "workers",
)
MANIFESTS = sorted(path for place in ("examples", "deploy") for path in (ROOT / place).rglob("*.[yt]*"))
VERBS = (
    *("annotate", "attach", "cp", "debug", "delete", "describe", "edit", "exec", "get", "label", "logs"),
    *("patch", "port-forward", "replace", "restart", "scale", "status", "wait"),
)
"""Those that look at an object, or change it. What `create` and `apply` make is where its user works."""
CLUSTER_WIDE = {
    *("clusterroles", "clusterrolebindings", "controllerinstallations", "controllerregistrations"),
    *("customresourcedefinitions", "crd", "extension", "namespace", "node", "--raw"),
    *(one.plural for one in RESOURCES.values() if not one.namespaced),
    *(one.kind.lower() for one in RESOURCES.values() if not one.namespaced),
}
PLACED = re.compile(r"(^|\s)(-n|--namespace|-A|--all-namespaces|-f|--filename)\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_links_commands_hints_and_cells_are_right(page: Path) -> None:
    text = page.read_text()
    if page.name != "CHANGELOG.md":  # which names files of its time
        assert [file for file in _FILE.findall(text) if not (ROOT / file).exists()] == []
        assert unplaced(text) == []
    links = re.findall(r"\]\(([^)\s]+)", text)
    files = {link.partition("#")[0] for link in links if not link.startswith("http")} - {""}
    assert [file for file in files if not (page.parent / file).exists()] == []
    assert [wrong for quoted in _QUOTED.findall(text) if (wrong := wrong_command(quoted))] == []
    assert set(_MAKE.findall(text)) <= TARGETS
    assert long_cells(text) == [], "sentences belong in paragraphs"


def wrong_command(quoted: str) -> str | None:
    """The first word of a quoted command that windowbox does not know."""
    words = shlex.split(re.split(r" # |[;|)]| && ", quoted)[0], posix=False)
    command: click.Command = cli
    with click.Context(cli) as context:
        for word in words:
            if word.startswith("-"):
                options = command.get_params(context)
                known = {name for option in options for name in (*option.opts, *option.secondary_opts)}
                if word.partition("=")[0] not in known | {"-h", "--help", "--version"}:
                    return f"{command.name} {word}"
            elif isinstance(command, click.Group):
                found = command.get_command(context, word)
                if found is None:
                    # Some groups also run without a subcommand.
                    return None if not word.isalpha() else f"{command.name} {word}"
                command = found
    return None


@pytest.mark.parametrize(
    ("quoted", "wrong"),
    [
        ("bench dnsrecords -n 1000 --first", None),
        ("bench nothing", "bench nothing"),
        ("bench bus --scale", "bus --scale"),
        ("lb list; windowbox nothing", None),
    ],
)
def test_a_wrong_command_is_found(quoted: str, wrong: str | None) -> None:
    assert wrong_command(quoted) == wrong


def long_cells(text: str) -> list[str]:
    """The cells of tables with more than 200 characters; the targets of links do not count."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = [cell.strip() for row in rows for cell in _LINK.sub("]", row).split("|")]
    return [cell for cell in cells if len(cell) > 200]


def test_a_long_cell_is_found() -> None:
    assert long_cells(f"| short | {'x' * 201} |\n| [{'y' * 10}]({'z' * 300}) |") == ["x" * 201]


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


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_hints_in_manifests_name_the_namespace(path: Path) -> None:
    assert unplaced(path.read_text()) == []


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
