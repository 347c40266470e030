"""The shape that the architecture demands: layers, one clock, one place for each broad except, no hidden state.

Each rule is a function from one source file to the faults found in it. Two tests go with it: the project has no
fault, and a planted one is found.
"""

import ast
from collections.abc import Callable, Iterator

import pytest
from source_tree import PACKAGES, Source, dotted, sources

MAY_IMPORT = {"gateway": {"gateway", "adapters", "store"}, "adapters": {"adapters"}, "store": {"store"}}
"""Each package, and which of our packages it may import."""

BROAD_EXCEPT_PLACES = {"gateway/manager/runner.py", "gateway/http/app.py"}
"""The job runner makes a job's failure of any error; the problem mapper makes a 500 of it."""

WALL_CLOCK_PLACE = "gateway/clock.py"

WALL_CLOCK_READS = {
    "time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today",
    "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today",
}  # fmt: skip

OUTSIDE_CALLS = {"open", "print", "os.getenv", "os.environ.get", "trio.run"}

OUTSIDE_METHODS = {"read_text", "read_bytes", "write_text", "write_bytes", "open", "mkdir", "exists"}

NAMELESS_SUBJECTS = {"util", "utils", "common", "helpers", "misc"}

Rule = Callable[[Source], Iterator[str]]


def imported_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full name of everything a file imports by absolute name; relative imports stay in their package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def upward_imports(source: Source) -> Iterator[str]:
    for line, name in imported_names(source.tree):
        package = name.split(".")[0]
        if package in PACKAGES and package not in MAY_IMPORT[source.package]:
            yield f"{source.path}:{line} imports {name}"


def asyncio_imports(source: Source) -> Iterator[str]:
    for line, name in imported_names(source.tree):
        if name.split(".")[0] == "asyncio":
            yield f"{source.path}:{line} imports {name}"


def demo_imports(source: Source) -> Iterator[str]:
    if source.path == "gateway/cli/demo.py" or source.path.startswith("gateway/demo/"):
        return
    for line, name in imported_names(source.tree):
        if name.startswith("gateway.demo"):
            yield f"{source.path}:{line} imports {name}"


def broad_excepts(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler):
            caught = set() if _raises_on(node) else _names(node.type)
        elif isinstance(node, ast.Call) and dotted(node.func).split(".")[-1] == "suppress":
            caught = {name for argument in node.args for name in _names(argument)}
        else:
            continue
        allowed = {"Exception"} if source.path in BROAD_EXCEPT_PLACES else set()
        if broad := caught & {"Exception", "BaseException", ""} - allowed:
            yield f"{source.path}:{node.lineno} catches {', '.join(broad) or 'everything'}"


def _raises_on(handler: ast.ExceptHandler) -> bool:
    """Whether it only cleans up: it ends by raising what it caught, and leaves by no other way."""
    last = handler.body[-1]
    leaves_early = any(isinstance(node, ast.Return | ast.Break | ast.Continue) for node in ast.walk(handler))
    return isinstance(last, ast.Raise) and last.exc is None and not leaves_early


def _names(caught: ast.expr | None) -> set[str]:
    if caught is None:
        return {""}
    nodes = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return {dotted(node) for node in nodes} - {""}


def wall_clock_reads(source: Source) -> Iterator[str]:
    if source.path == WALL_CLOCK_PLACE:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and dotted(node) in WALL_CLOCK_READS:
            yield f"{source.path}:{node.lineno} reads {dotted(node)}"
    for line, name in imported_names(source.tree):
        if name in WALL_CLOCK_READS:
            yield f"{source.path}:{line} imports {name}"


def global_statements(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Global):
            yield f"{source.path}:{node.lineno} declares {', '.join(node.names)} global"


def module_level_effects(source: Source) -> Iterator[str]:
    for node in _run_at_import(source.tree):
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in OUTSIDE_CALLS or (
                isinstance(node.func, ast.Attribute) and node.func.attr in OUTSIDE_METHODS
            ):
                yield f"{source.path}:{node.lineno} calls {name or node.func.attr} at import"
        elif isinstance(node, ast.Subscript) and dotted(node.value) == "os.environ":
            yield f"{source.path}:{node.lineno} reads the environment at import"


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _run_at_import(child)


def nameless_modules(source: Source) -> Iterator[str]:
    if NAMELESS_SUBJECTS & set(source.path.removesuffix(".py").split("/")):
        yield f"{source.path} is named after no subject"


RULES: dict[Rule, tuple[str, str]] = {
    upward_imports: ("store/planted.py", "def late():\n    from gateway.clock import wall_clock"),
    asyncio_imports: ("gateway/planted.py", "import asyncio.locks"),
    demo_imports: ("gateway/http/planted.py", "from gateway.demo import scan"),
    broad_excepts: ("adapters/planted.py", "try:\n    pass\nexcept (OSError, Exception):\n    pass"),
    wall_clock_reads: ("store/planted.py", "import time\nclock = time.time"),
    global_statements: ("gateway/planted.py", "def f():\n    global state\n    state = 1"),
    module_level_effects: ("gateway/planted.py", "import os\nclass C:\n    home = os.environ['HOME']"),
    nameless_modules: ("gateway/http/utils.py", ""),
}
"""Each rule with a planted fault: the path and the text of a file that breaks it."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_project_has_no_fault(rule: Rule) -> None:
    """No file of the three packages breaks the rule."""
    faults = [fault for source in sources(*PACKAGES) for fault in rule(source)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_planted_fault_is_found(rule: Rule) -> None:
    """A file that breaks the rule is found, once."""
    assert len(list(rule(Source(*RULES[rule])))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("adapters/planted.py", "import store.job"),
        ("adapters/planted.py", "import gateway"),
        ("store/planted.py", "from adapters.base import Call"),
        ("store/local/planted.py", "from gateway.http import app"),
    ],
)
def test_each_direction_between_layers_is_guarded(path: str, text: str) -> None:
    """Adapters and store import nothing of ours outside themselves."""
    assert len(list(upward_imports(Source(path, text)))) == 1


def test_downward_imports_are_allowed() -> None:
    """The gateway imports both layers below it."""
    planted = Source(
        "gateway/planted.py", "import store.job\nfrom adapters import base\nfrom gateway import clock"
    )
    assert list(upward_imports(planted)) == []


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    pass\nexcept:\n    pass",
        "try:\n    pass\nexcept* Exception:\n    pass",
        "with suppress(Exception):\n    pass",
    ],
)
def test_every_form_of_broad_except_is_found(text: str) -> None:
    """A bare except, a broad except* and a broad suppress count as broad."""
    assert len(list(broad_excepts(Source("store/planted.py", text)))) == 1


def test_clean_up_that_raises_on_is_allowed() -> None:
    """A broad handler that ends with a bare raise swallows nothing; one that may return first does."""
    text = "def f():\n    try:\n        g()\n    except BaseException:\n        {}\n        raise"
    assert list(broad_excepts(Source("store/planted.py", text.format("undo()")))) == []
    assert len(list(broad_excepts(Source("store/planted.py", text.format("if undo(): return"))))) == 1


def test_named_places_may_not_catch_base_exception() -> None:
    """Cancellation passes through the places that may catch broadly as well."""
    text = "try:\n    pass\nexcept BaseException:\n    pass"
    assert len(list(broad_excepts(Source("gateway/manager/runner.py", text)))) == 1
