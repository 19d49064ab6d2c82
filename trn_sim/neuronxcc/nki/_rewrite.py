"""``a and b`` of masks in a kernel's source means ``a & b``, as AWS's tracer read it; Python alone would drop ``a``."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any

from trn_sim.neuronxcc.nki._index import Mask

__all__ = ["with_mask_logic"]

_AND = "__mask_and"


def _mask_and(first: Any, rest: Callable[[], Any]) -> Any:
    return first & rest() if isinstance(first, Mask) else first and rest()


class _Joiner(ast.NodeTransformer):
    found = False

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.And) or any(
            isinstance(inner, (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)) for inner in ast.walk(node)
        ):
            return node
        self.found = True
        joined = node.values[-1]
        for value in reversed(node.values[:-1]):
            nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
            rest = ast.Lambda(args=nothing, body=joined)
            joined = ast.Call(func=ast.Name(id=_AND, ctx=ast.Load()), args=[value, rest], keywords=[])
        return ast.copy_location(joined, node)


def with_mask_logic(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with every ``and`` in its source joining masks; itself where it has none, or no source."""
    if not isinstance(function, FunctionType):
        return function
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError):
        return function
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        return function
    joiner = _Joiner()
    definition.body = [joiner.visit(statement) for statement in definition.body]
    if not joiner.found:
        return function
    definition.decorator_list = []
    definition.returns = None
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    definition.args.defaults = [ast.Constant(None) for _ in definition.args.defaults]
    definition.args.kw_defaults = [
        None if value is None else ast.Constant(None) for value in definition.args.kw_defaults
    ]
    cells = {_AND: CellType(_mask_and)}
    cells |= dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    outer = ast.FunctionDef(
        name="__outer",
        args=ast.arguments(
            posonlyargs=[], args=[ast.arg(arg=name) for name in cells], kwonlyargs=[], kw_defaults=[], defaults=[]
        ),
        body=[definition],
        decorator_list=[],
    )
    module = ast.fix_missing_locations(ast.Module(body=[outer], type_ignores=[]))
    ast.increment_lineno(module, first - 1)
    code = _inner(_inner(compile(module, function.__code__.co_filename, "exec"), "__outer"), function.__name__)
    closure = tuple(cells[name] for name in code.co_freevars)
    twin = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__dict__.update(function.__dict__)
    return twin


def _inner(code: CodeType, name: str) -> CodeType:
    return next(const for const in code.co_consts if isinstance(const, CodeType) and const.co_name == name)
