"""Small faults put into a syntax tree, one at a time: what `tools/mutation.py` asks the tests to notice.

A fault is a change that a slip of the hand could make: another comparison, a sign, an off-by-one, a forgotten keyword,
a dropped statement, a missing transpose. Annotations, docstrings, decorators and the wording of messages are left
alone: no test should depend on them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

OTHER = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "maximum": "minimum", "minimum": "maximum"}
DROPPED_CALLS = {"abs", "clamp_min", "clone", "conj", "detach", "double", "exp", "flip", "rsqrt", "sqrt", "unsqueeze"}
DROPPED_ATTRIBUTES = {"mT", "T"}

Path = tuple[tuple[str, int | None], ...]


@dataclass(frozen=True)
class Fault:
    """One change: where the node stands in the tree, which variant of it, and how to read it."""

    path: Path
    variant: int
    line: int
    last_line: int
    function: str
    before: str
    after: str


def faults(source: str) -> list[Fault]:
    """Every fault of a module, in the order of its lines."""
    found = []
    for path, node, function in _places(ast.parse(source)):
        for variant, changed in enumerate(_variants(node)):
            found.append(
                Fault(path, variant, node.lineno, node.end_lineno or 0, function, _shown(node), _shown(changed))
            )
    return sorted(found, key=lambda fault: fault.line)


def faulty(source: str, fault: Fault) -> ast.Module:
    """The tree of a module with a fault in it."""
    tree = ast.parse(source)
    holder, (field, index) = tree, fault.path[-1]
    for name, position in fault.path[:-1]:
        holder = getattr(holder, name) if position is None else getattr(holder, name)[position]
    node = getattr(holder, field) if index is None else getattr(holder, field)[index]
    changed = ast.copy_location(list(_variants(node))[fault.variant], node)
    if index is None:
        setattr(holder, field, changed)
    else:
        getattr(holder, field)[index] = changed
    return ast.fix_missing_locations(tree)


def _shown(node: ast.AST) -> str:
    if isinstance(node, ast.Pass):
        return "(nothing)"
    if isinstance(node, ast.If) and isinstance(node.body[0], ast.Pass | ast.Raise):
        return f"if {ast.unparse(node.test)}: {type(node.body[0]).__name__.lower()}"
    return ast.unparse(node).partition("\n")[0]


def _places(tree: ast.Module) -> Iterator[tuple[Path, ast.expr | ast.stmt, str]]:
    """Nodes that may be changed, with the way to them and the function they belong to."""

    def walk(node: ast.AST, path: Path, function: str) -> Iterator[tuple[Path, ast.expr | ast.stmt, str]]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
        if isinstance(node, ast.expr | ast.stmt):
            yield path, node, function
        for field, index, child in _children(node):
            yield from walk(child, (*path, (field, index)), function)

    yield from walk(tree, (), "")


def _children(node: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases", "ctx"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if isinstance(child, ast.AST) and not _is_wording(node, child):
                yield field, index, child


def _is_wording(parent: ast.AST, node: ast.AST) -> bool:
    """Whether a node is text for people, or for type checkers."""
    if isinstance(parent, ast.Raise) or isinstance(node, ast.JoinedStr):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id == "__all__" or isinstance(node.value, ast.JoinedStr)
    if isinstance(node, ast.AnnAssign):
        return "TypeAlias" in ast.unparse(node.annotation)
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _variants(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a node, always in the same order."""
    make = MUTATORS.get(type(node))
    if make:
        yield from make(node)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.deepcopy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _negated(test: ast.expr) -> ast.expr:
    return test.operand if isinstance(test, ast.UnaryOp) else ast.UnaryOp(ast.Not(), test)


def _compare(node: ast.Compare) -> Iterator[ast.AST]:
    for position, operator in enumerate(node.ops):
        for other in OTHER[type(operator)]:
            yield _with(node, ops=[*node.ops[:position], other(), *node.ops[position + 1 :]])


def _operator(node: ast.BinOp | ast.BoolOp | ast.AugAssign) -> Iterator[ast.AST]:
    for other in OTHER.get(type(node.op), ()):
        yield _with(node, op=other())
    if isinstance(node, ast.AugAssign):
        yield ast.Pass()


def _unary(node: ast.UnaryOp) -> Iterator[ast.AST]:
    if isinstance(node.op, ast.Not | ast.USub):
        yield copy.deepcopy(node.operand)


def _constant(node: ast.Constant) -> Iterator[ast.AST]:
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, int):
        yield ast.Constant(node.value + 1)
    elif isinstance(node.value, float):
        yield ast.Constant(2 * node.value if node.value else 1.0)


def _condition(node: ast.If | ast.IfExp | ast.While) -> Iterator[ast.AST]:
    if not isinstance(node.test, ast.Compare | ast.UnaryOp):  # those have this fault already
        yield _with(node, test=_negated(copy.deepcopy(node.test)))
    if isinstance(node, ast.If) and len(node.body) == 1 and isinstance(node.body[0], ast.Raise):
        yield _with(node, body=[ast.Pass()])


def _return(node: ast.Return) -> Iterator[ast.AST]:
    if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
        yield _with(node, value=ast.Constant(None))


def _statement(node: ast.Expr) -> Iterator[ast.AST]:
    yield ast.Pass()


def _call(node: ast.Call) -> Iterator[ast.AST]:
    for position in range(len(node.keywords)):
        yield _with(node, keywords=[*node.keywords[:position], *node.keywords[position + 1 :]])
    called = node.func
    if isinstance(called, ast.Name) and called.id in NAMES:
        yield _with(node, func=ast.Name(NAMES[called.id], ast.Load()))
    elif isinstance(called, ast.Attribute):
        if called.attr in NAMES:
            yield _with(node, func=_with(called, attr=NAMES[called.attr]))
        if called.attr in DROPPED_CALLS:
            yield copy.deepcopy(called.value)


def _attribute(node: ast.Attribute) -> Iterator[ast.AST]:
    if node.attr in DROPPED_ATTRIBUTES:
        yield copy.deepcopy(node.value)


MUTATORS: dict[type, Callable[..., Iterator[ast.AST]]] = {
    ast.Compare: _compare,
    ast.BinOp: _operator,
    ast.BoolOp: _operator,
    ast.AugAssign: _operator,
    ast.UnaryOp: _unary,
    ast.Constant: _constant,
    ast.If: _condition,
    ast.IfExp: _condition,
    ast.While: _condition,
    ast.Return: _return,
    ast.Expr: _statement,
    ast.Call: _call,
    ast.Attribute: _attribute,
}
