"""The project's own source, read as text and as syntax trees, for the tests about its shape."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent

PACKAGES = ("gateway", "adapters", "store")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One Python file: its path from the project's root, its text and its syntax tree."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def package(self) -> str:
        return self.path.split("/")[0]


def sources(*folders: str) -> tuple[Source, ...]:
    """All Python files below the folders of the project."""
    return tuple(source for folder in folders for source in _below(folder))


@cache
def _below(folder: str) -> tuple[Source, ...]:
    paths = sorted((ROOT / folder).rglob("*.py"))
    return tuple(Source(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in paths)


def functions(tree: ast.AST) -> Iterator[Function]:
    """Each function and method of a tree, nested ones as well."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def dotted(node: ast.AST) -> str:
    """A name or a chain of attributes as it is written; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""
