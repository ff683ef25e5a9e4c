"""`python -m tools.house [FOLDER…]` measures the code outside tests: lines, modules, functions, comments."""

from __future__ import annotations

import ast
import io
import statistics
import subprocess
import sys
import tokenize
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_MODULES = 16
"""Of a folder, without those of its subfolders."""
MOST_LINES = 50
"""Of a function."""


@dataclass(frozen=True)
class Function:
    name: str
    lines: int
    uses: int
    """Mentions of the name in its module."""

    @property
    def called_once(self) -> bool:
        return self.name.startswith("_") and not self.name.startswith("__") and self.uses == 1


@dataclass(frozen=True)
class Module:
    path: Path

    @cached_property
    def text(self) -> str:
        return (ROOT / self.path).read_text()

    @property
    def name(self) -> str:
        return ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")

    @property
    def is_face(self) -> bool:
        """Whether it only introduces its folder."""
        return self.path.name == "__init__.py"

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def functions(self) -> list[Function]:
        names = Counter(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Name | ast.Attribute)
        )
        return [
            Function(node.name, (node.end_lineno or node.lineno) - node.lineno + 1, names[node.name])
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    @property
    def comments(self) -> int:
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return sum(token.type == tokenize.COMMENT for token in tokens)

    @property
    def imports(self) -> set[str]:
        """The names of modules, and of what is in them, that it imports."""
        found = set[str]()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
            elif isinstance(node, ast.Import):
                found |= {one.name for one in node.names}
        return found


def modules(*folders: str, tests: bool = False) -> list[Module]:
    """All modules that git knows of, or would add, below these folders."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    paths = [Path(one) for one in listed if one.startswith("tests/") is tests and (ROOT / one).exists()]
    return [Module(path) for path in paths if not folders or str(path).startswith(folders)]


def crowded(found: list[Module]) -> dict[str, int]:
    """Folders with too many modules of their own."""
    folders = Counter(str(module.path.parent) for module in found if not module.is_face)
    return {folder: count for folder, count in folders.items() if count > MOST_MODULES}


def namesakes(found: list[Module]) -> dict[str, list[str]]:
    """Modules of the same name in three folders or more: grep does not find one of them."""
    by_stem: dict[str, list[str]] = {}
    for module in found:
        if not module.path.stem.startswith("__"):
            by_stem.setdefault(module.path.stem, []).append(str(module.path))
    return {stem: paths for stem, paths in by_stem.items() if len(paths) > 2}


def main() -> None:
    found = modules(*sys.argv[1:])
    lines = {module.name: module.text.count("\n") for module in found}
    bodies = [lines[module.name] for module in found if not module.is_face]
    functions = [function for module in found for function in module.functions]
    private = [
        function for function in functions if function.name.startswith("_") and "__" not in function.name
    ]
    once = [function for function in functions if function.called_once]
    written = sum(bool(line.strip()) for module in found for line in module.text.splitlines())
    importers = Counter(name for module in found for name in module.imports if name in lines)
    tests = sum(module.text.count("\n") for module in modules(tests=True))
    print(f"lines                         {sum(lines.values())}, tests {tests}")
    print(
        f"modules                       {len(bodies)}, median {statistics.median(bodies):.0f} lines, "
        f"longest {max(bodies)}"
    )
    print(f"modules with one importer     {sum(count == 1 for count in importers.values())}")
    print(f"private functions called once {len(once)} of {len(private)}, {len(once) / len(private):.0%}")
    print(f"functions beyond {MOST_LINES} lines     {sum(one.lines > MOST_LINES for one in functions)}")
    print(f"comments                      {sum(module.comments for module in found) / written:.1%} of lines")
    for folder, count in sorted(crowded(found).items()):
        print(f"{folder} has {count} modules: at most {MOST_MODULES}")
    for stem, paths in sorted(namesakes(found).items()):
        print(f"{stem}.py is in {', '.join(str(Path(path).parent) for path in paths)}")


if __name__ == "__main__":
    main()
