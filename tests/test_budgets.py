"""Size budgets: the worst file, function, parameter list and class, not the average.

What counts: a function's code lines without its docstring, comments and blank lines; all named parameters, also the
keyword-only ones, but not self, cls and Trio's task_status, which no caller passes; the public methods a class adds
to those that one of our protocols demands.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache

import pytest
from source_tree import PACKAGES, Function, Source, dotted, functions, sources

FILE_LINES = 400
FUNCTION_LINES = 40
PARAMETERS = 6
PUBLIC_METHODS = 15

NOT_PASSED = {"self", "cls", "task_status"}

SUPPRESSION = re.compile(r"#\s*(noqa|type:\s*ignore|fmt:|pragma)")
EXPLAINED = re.compile(
    r"#\s*(noqa: [A-Z]+\d+(, ?[A-Z]+\d+)*|type: ignore\[[a-z-]+(, ?[a-z-]+)*\])\s+\S.*|#\s*fmt: skip\s*"
)
"""A code and a reason; `fmt: skip` needs none, it changes no rule."""


def long_files(source: Source) -> Iterator[str]:
    lines = source.text.count("\n")
    if lines > FILE_LINES:
        yield f"{source.path} has {lines} lines"


def long_functions(source: Source) -> Iterator[str]:
    large = [each for each in functions(source.tree) if _span(each) > FUNCTION_LINES]
    code = _code_lines(source) if large else set()
    for function in large:
        first = (
            function.body[1].lineno if _docstring(function) and function.body[1:] else function.body[0].lineno
        )
        signature = range(function.lineno, function.body[0].lineno)
        body = range(first, (function.end_lineno or first) + 1)
        lines = len(code & ({*signature} | {*body}))
        if lines > FUNCTION_LINES:
            yield f"{source.path}:{function.lineno} {function.name} has {lines} code lines"


def _span(function: Function) -> int:
    """Lines of all kinds."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _code_lines(source: Source) -> set[int]:
    """The lines on which a token stands that is neither comment nor line end."""
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    return {
        line
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline)
        if token.type not in blank
        for line in range(token.start[0], token.end[0] + 1)
    }


def _docstring(function: Function) -> str | None:
    return ast.get_docstring(function, clean=False)


def long_parameter_lists(source: Source) -> Iterator[str]:
    for function in functions(source.tree):
        given = function.args
        names = {
            argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)
        } - NOT_PASSED
        if len(names) > PARAMETERS:
            yield f"{source.path}:{function.lineno} {function.name} has {len(names)} parameters"


def wide_classes(source: Source) -> Iterator[str]:
    demanded = _demanded_by_protocols()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef) and not _is_protocol(node):
            added = {name for name in _public_methods(node) if name not in demanded}
            if len(added) > PUBLIC_METHODS:
                yield f"{source.path}:{node.lineno} {node.name} has {len(added)} public methods"


@cache
def _demanded_by_protocols() -> set[str]:
    nodes = (node for source in sources(*PACKAGES) for node in ast.walk(source.tree))
    return {
        name
        for node in nodes
        if isinstance(node, ast.ClassDef) and _is_protocol(node)
        for name in _public_methods(node)
    }


def _is_protocol(node: ast.ClassDef) -> bool:
    return any(dotted(base).split(".")[-1] == "Protocol" for base in node.bases)


def _public_methods(node: ast.ClassDef) -> Iterator[str]:
    return (item.name for item in node.body if isinstance(item, Function) and not item.name.startswith("_"))


def unexplained_suppressions(source: Source) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if (
            token.type == tokenize.COMMENT
            and SUPPRESSION.match(token.string)
            and not EXPLAINED.match(token.string)
        ):
            yield f"{source.path}:{token.start[0]} {token.string}"


def silent_tests(source: Source) -> Iterator[str]:
    for function in functions(source.tree):
        if function.name.startswith("test_") and not _docstring(function):
            yield f"{source.path}:{function.lineno} {function.name} has no docstring"


OUR_CODE = PACKAGES
ALL_CODE = (*PACKAGES, "tests")

METHODS = "\n".join(f"    def method_{n}(self): ..." for n in range(PUBLIC_METHODS + 1))

RULES = {
    long_files: (ALL_CODE, "\n" * (FILE_LINES + 1)),
    long_functions: (ALL_CODE, "def f():\n" + "    f()\n" * FUNCTION_LINES),
    long_parameter_lists: (OUR_CODE, "def f(self, a, b, c, d, e, f, *, g): ..."),
    wide_classes: (OUR_CODE, f"class C:\n{METHODS}"),
    unexplained_suppressions: (ALL_CODE, "x = 1  # noqa: E501"),
    silent_tests: (("tests",), "async def test_it():\n    pass"),
}
"""Each rule: where it holds, and a planted fault."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_project_keeps_the_budget(rule) -> None:
    """No file breaks the rule where it holds."""
    folders, _ = RULES[rule]
    faults = [fault for source in sources(*folders) for fault in rule(source)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_planted_excess_is_found(rule) -> None:
    """A file that breaks the rule is found, once."""
    _, text = RULES[rule]
    assert len(list(rule(Source("gateway/planted.py", text)))) == 1


def test_docstring_comments_and_blank_lines_are_free() -> None:
    """A function is as long as its code: what explains it does not count."""
    text = 'def f():\n    """One.\n\n    Two.\n    """\n' + "    # why\n\n    f()\n" * (FUNCTION_LINES - 1)
    assert list(long_functions(Source("gateway/planted.py", text))) == []


@pytest.mark.parametrize(
    "comment",
    ["# noqa", "# noqa: ARG002", "# type: ignore", "# type: ignore[attr-defined]", "# noqa because"],
)
def test_suppression_needs_code_and_reason(comment: str) -> None:
    """Neither a bare suppression nor one without its reason passes."""
    assert len(list(unexplained_suppressions(Source("gateway/planted.py", f"x = 1  {comment}\n")))) == 1


def test_explained_suppression_passes() -> None:
    """A suppression with a code and a reason passes."""
    text = "x = 1  # noqa: ARG002, S101  # why\ny = 2  # type: ignore[no-any-return]  # why\n"
    assert list(unexplained_suppressions(Source("gateway/planted.py", text))) == []
