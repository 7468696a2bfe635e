"""Makes the mutants of a module: each differs from it in one place, where the module decides or does something.

What is changed: comparisons (``<`` and ``<=``, ``==`` and ``!=``, ...), conditions (negated), operands of and/or (left
out), arithmetic, numbers (one more), True and False, statements (left out), what is returned (None), and the entries of
tables (left out, or given the value of another one). Texts, log calls and the words of errors stay as they are.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Final, NamedTuple, TypeAlias, cast

__all__ = ["Mutant", "MutantKey", "mutants_of"]

_COMPARISONS: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
#: Of these, the swapped one is the negated one.
_NEGATED_BY_SWAP: Final = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_ARITHMETIC: Final[Mapping[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_BUILTINS: Final[Mapping[str, str]] = {"min": "max", "max": "min", "any": "all", "all": "any"}

LEFT_OUT: Final = "(left out)"

#: Nothing is decided in these.
_UNMUTATED_NAMES: Final = ("__all__", "__slots__")
_UNMUTATED_FUNCTIONS: Final = ("__repr__",)

_LeftOut: TypeAlias = (
    ast.Expr
    | ast.Assign
    | ast.AnnAssign
    | ast.AugAssign
    | ast.Delete
    | ast.Raise
    | ast.Continue
    | ast.Break
    | ast.Return
)


class MutantKey(NamedTuple):
    """The identity of a mutant, independent of line numbers: the module, the function, and the text before and after."""

    module: str
    function: str
    before: str
    after: str

    def __str__(self) -> str:
        where = f"{self.module}, {self.function or 'module level'}"
        return f"{where}:\n  - {self.before}\n  + {self.after}"


class _Edit(NamedTuple):
    """A node, and what some of its fields become. ``texts`` are shown where the whole statement would be too long."""

    node: ast.AST
    fields: Mapping[str, object]
    texts: tuple[str, str] | None = None


class _Place(NamedTuple):
    """The statement around a node, and the outermost function around that."""

    statement: ast.stmt
    function: str
    is_run_by_tests: bool  # else by the import


@dataclass(frozen=True)
class Mutant:
    """One mutant. ``lines`` are those of the statement: a test that runs none of them cannot notice it."""

    key: MutantKey
    path: Path
    lines: range
    is_in_function: bool
    _tree: ast.Module
    _edit: _Edit

    def compiled(self) -> CodeType:
        """The code of the whole module, with this one change."""
        with _made(self._edit):
            return compile(ast.fix_missing_locations(self._tree), str(self.path), "exec", dont_inherit=True)


def mutants_of(path: Path, name: str) -> list[Mutant]:
    """All mutants of a module in the order of its lines; ``name`` is what their keys call it."""
    tree = ast.parse(path.read_text())
    found: list[Mutant] = []
    seen = Counter[MutantKey]()
    for place, edit in _walk(tree):
        before, after = edit.texts or _texts(place.statement, edit)
        key = MutantKey(name, place.function, before, after)
        seen[key] += 1
        if seen[key] > 1:  # the same statement stands in the function more than once
            key = key._replace(before=f"{before}  # {seen[key]}")
        lines = range(place.statement.lineno, _last_line_of_head(place.statement) + 1)
        found.append(Mutant(key, path, lines, place.is_run_by_tests, tree, edit))
    return found


def _texts(statement: ast.stmt, edit: _Edit) -> tuple[str, str]:
    before = _head(statement)
    with _made(edit):
        return before, _head(statement)


@contextmanager
def _made(edit: _Edit) -> Generator[None]:
    originals = {field: getattr(edit.node, field) for field in edit.fields}
    for field, value in edit.fields.items():
        setattr(edit.node, field, value)
    try:
        yield
    finally:
        for field, value in originals.items():
            setattr(edit.node, field, value)


def _head(statement: ast.stmt) -> str:
    lines = ast.unparse(ast.fix_missing_locations(statement)).splitlines()
    return next((line for line in lines if not line.startswith("@")), "")


def _last_line_of_head(statement: ast.stmt) -> int:
    body: Sequence[ast.stmt] = getattr(statement, "body", ())
    if body:
        return max(statement.lineno, body[0].lineno - 1)
    return statement.end_lineno or statement.lineno


# -- where something can be changed -----------------------------------------------------------------------------------


def _walk(tree: ast.Module) -> Iterator[tuple[_Place, _Edit]]:
    yield from _in_body(tree, "body", "", in_function=False)


def _in_body(owner: ast.AST, field: str, function: str, *, in_function: bool) -> Iterator[tuple[_Place, _Edit]]:
    body: list[ast.stmt] = getattr(owner, field)
    for at, statement in enumerate(body):
        if _is_unmutated(statement):
            continue
        place = _Place(statement, function, in_function)
        if _may_be_left_out(statement):
            without = [*body[:at], ast.copy_location(ast.Pass(), statement), *body[at + 1 :]]
            yield place, _Edit(owner, {field: without}, (_head(statement), LEFT_OUT))
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _in_definition(statement, function, in_function=in_function)
        else:
            yield from _in_statement(statement, place)


def _in_definition(
    statement: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, function: str, *, in_function: bool
) -> Iterator[tuple[_Place, _Edit]]:
    inner = function if in_function else f"{function}.{statement.name}".lstrip(".")
    if not isinstance(statement, ast.ClassDef):  # the default values
        place = _Place(statement, inner, in_function)
        for default in (*statement.args.defaults, *(each for each in statement.args.kw_defaults if each)):
            yield from ((place, edit) for edit in _in_expression(default, is_table=False))
    yield from _in_body(statement, "body", inner, in_function=in_function or not isinstance(statement, ast.ClassDef))


def _in_statement(statement: ast.stmt, place: _Place) -> Iterator[tuple[_Place, _Edit]]:
    if isinstance(statement, ast.Return) and statement.value is not None and not _is_none(statement.value):
        yield place, _Edit(statement, {"value": ast.Constant(None)})
    if isinstance(statement, ast.AugAssign) and type(statement.op) in _ARITHMETIC:
        yield place, _Edit(statement, {"op": _ARITHMETIC[type(statement.op)]()})
    if isinstance(statement, ast.Raise | ast.Assert):
        return
    for field, value in ast.iter_fields(statement):
        if field == "annotation":
            continue
        values = cast("list[object]", value) if isinstance(value, list) else [value]
        for each in values:
            if isinstance(each, ast.expr | ast.withitem):
                yield from ((place, edit) for edit in _in_expression(each, is_table=not place.is_run_by_tests))
            elif isinstance(each, ast.ExceptHandler | ast.match_case):
                yield from _in_body(each, "body", place.function, in_function=place.is_run_by_tests)
        if values and isinstance(values[0], ast.stmt):
            yield from _in_body(statement, field, place.function, in_function=place.is_run_by_tests)
    if isinstance(statement, ast.If | ast.While):
        yield from ((place, edit) for edit in _negated(statement, "test", statement.test))


def _in_expression(node: ast.AST, *, is_table: bool) -> Iterator[_Edit]:
    if isinstance(node, ast.JoinedStr):
        return
    yield from _edits(node)
    if is_table:
        yield from _of_table(node)
    for child in ast.iter_child_nodes(node):
        yield from _in_expression(child, is_table=is_table and not isinstance(node, ast.Subscript))  # of a type


def _edits(node: ast.AST) -> Iterator[_Edit]:
    match node:
        case ast.Compare():
            for at, op in enumerate(node.ops):
                yield _Edit(node, {"ops": [*node.ops[:at], _COMPARISONS[type(op)](), *node.ops[at + 1 :]]})
        case ast.BoolOp():
            neutral = ast.Constant(isinstance(node.op, ast.And))
            for at in range(len(node.values)):
                yield _Edit(node, {"values": [*node.values[:at], neutral, *node.values[at + 1 :]]})
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
            yield _Edit(node, {"op": _ARITHMETIC[type(op)]()})
        case ast.UnaryOp(op=ast.Not()):
            yield _Edit(node, {"operand": ast.UnaryOp(ast.Not(), node.operand)})
        case ast.Constant(value=bool(value)):
            yield _Edit(node, {"value": not value})
        case ast.Constant(value=int(value) | float(value)):
            yield _Edit(node, {"value": value + 1})
        case ast.IfExp():
            yield from _negated(node, "test", node.test)
        case ast.comprehension():
            for at, test in enumerate(node.ifs):
                negated = [*node.ifs[:at], ast.UnaryOp(ast.Not(), test), *node.ifs[at + 1 :]]
                if not _is_negated_anyway(test):
                    yield _Edit(node, {"ifs": negated})
        case ast.Call(func=ast.Name(id=name)) if name in _BUILTINS:
            yield _Edit(node, {"func": ast.Name(_BUILTINS[name], ast.Load())})
        case _:
            pass


def _negated(node: ast.AST, field: str, test: ast.expr) -> Iterator[_Edit]:
    if not _is_negated_anyway(test):
        yield _Edit(node, {field: ast.UnaryOp(ast.Not(), test)})


def _is_negated_anyway(test: ast.expr) -> bool:
    match test:
        case ast.UnaryOp(op=ast.Not()) | ast.Constant():
            return True
        case ast.Compare(ops=[op]):
            return isinstance(op, _NEGATED_BY_SWAP)
        case _:
            return False


def _of_table(node: ast.AST) -> Iterator[_Edit]:
    """The entries of what stands at the level of a module or class: each left out, each with another one's value."""
    match node:
        case ast.Dict():
            for at, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
                entry = f"{ast.unparse(key)}: {ast.unparse(value)}" if key else f"**{ast.unparse(value)}"
                without = {
                    "keys": node.keys[:at] + node.keys[at + 1 :],
                    "values": node.values[:at] + node.values[at + 1 :],
                }
                yield _Edit(node, without, (entry, LEFT_OUT))
                other = _other_value(node, at) if key else None
                if key and other:
                    swapped = [*node.values[:at], other, *node.values[at + 1 :]]
                    yield _Edit(node, {"values": swapped}, (entry, f"{ast.unparse(key)}: {ast.unparse(other)}"))
        case ast.Set(elts=entries) | ast.Tuple(elts=entries) | ast.List(elts=entries) if len(entries) > 1:
            for at, each in enumerate(entries):
                yield _Edit(node, {"elts": entries[:at] + entries[at + 1 :]}, (ast.unparse(each), LEFT_OUT))
        case ast.Call(args=arguments) if len(arguments) > 1:
            for at in range(len(arguments)):
                fewer = arguments[:at] + arguments[at + 1 :]
                after = ast.unparse(ast.Call(node.func, fewer, node.keywords))
                yield _Edit(node, {"args": fewer}, (ast.unparse(node), after))
        case _:
            pass


def _other_value(table: ast.Dict, at: int) -> ast.expr | None:
    own = ast.unparse(table.values[at])
    rest = zip([*table.keys[at + 1 :], *table.keys[:at]], [*table.values[at + 1 :], *table.values[:at]], strict=True)
    return next((value for key, value in rest if key and ast.unparse(value) != own), None)


# -- what is not changed ----------------------------------------------------------------------------------------------


def _is_unmutated(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in _UNMUTATED_NAMES
        case ast.FunctionDef(name=name):
            return name in _UNMUTATED_FUNCTIONS
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="logger") | ast.Attribute(attr="_log")))):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case _:
            return False


def _may_be_left_out(statement: ast.stmt) -> bool:
    match statement:
        case ast.Return():
            return statement.value is None
        case ast.Assign(targets=targets):
            return not any(isinstance(each, ast.Name) for each in targets)
        case ast.AnnAssign(target=target):
            return statement.value is not None and not isinstance(target, ast.Name)
        case _:
            return isinstance(statement, _LeftOut)


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None
