"""What the Vector Engine's instructions share: rules on operands, and the arithmetic units.

Operands become float32, exactly unless they are integers beyond 2**24; every operator rounds to float32, and the
result is rounded once more to the destination.  Bitwise operators see integers; of different widths, the narrower ones
are extended by their sign or by zeros (NKI documents equal dtypes only).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from isa import dtypes
from isa.alu import AluOp
from isa.engine import Engine
from isa.instruction import Array, Instruction, Machine
from isa.operands import AccessPattern, Space
from isa.target import Target

__all__ = [
    "FLOAT32",
    "FLOATS",
    "INT32",
    "apply",
    "check_arithmetic",
    "check_engine",
    "check_equal_dtypes",
    "check_integers",
    "check_one_in_psum",
    "check_operator",
    "compute",
    "integers",
    "store_integers",
]

FLOAT32 = frozenset({"float32"})
FLOATS = frozenset(str(one) for one in dtypes.ALL if one.is_float)
INT32 = frozenset({"int32", "uint32"})


# --- rules ----------------------------------------------------------------------------------------


def check_equal_dtypes(ins: Instruction, name: str, other: str, target: Target) -> None:
    """For instructions that move bits."""
    if getattr(ins, name).dtype != getattr(ins, other).dtype:
        raise ins.refuse(
            name,
            f"dtype differs from that of '{other}', {getattr(ins, other).dtype}",
            limit="equal dtypes",
            target=target,
            advice="convert with tensor_copy",
        )


def check_one_in_psum(ins: Instruction, first: str, second: str, target: Target) -> None:
    """There is one read port to PSUM."""
    operands = getattr(ins, first), getattr(ins, second)
    if all(isinstance(one, AccessPattern) and one.space is Space.PSUM for one in operands):
        raise ins.refuse(
            second,
            f"is in PSUM, as '{first}' is",
            limit=f"at most one of '{first}' and '{second}' in PSUM",
            target=target,
            advice="copy one of them to SBUF with tensor_copy",
        )


def check_engine(ins: Instruction, engine: Engine, target: Target) -> None:
    """The engine must be one that has the instruction, and GpSimd reaches SBUF only."""
    if engine not in ins.engines:
        raise ins.refuse(
            None,
            f"the {engine.title} Engine does not have this instruction",
            limit="engine: " + " or ".join(one.name for one in ins.engines),
            target=target,
        )
    if engine is Engine.gpsimd:
        for name, operand in ins.tensors():
            if operand.space is Space.PSUM:
                raise ins.refuse(
                    name,
                    "is in PSUM, which the GpSimd Engine does not reach",
                    limit="SBUF on engine gpsimd",
                    target=target,
                    advice="copy it to SBUF with tensor_copy, or use another engine",
                )


def check_operator(ins: Instruction, name: str, op: AluOp, target: Target) -> None:
    """The operator must exist on this generation and not be one that only reduces."""
    if op.name == "average":
        raise ins.refuse(None, f"{name} is average, which only reduces over partitions", target=target)
    if target.generation < op.minimum_generation:
        raise ins.refuse(
            None,
            f"{name} is {op}, which does not exist on this generation",
            limit=f"{op} from NeuronCore-v{op.minimum_generation} on",
            target=target,
        )


def check_arithmetic(ins: Instruction, name: str, op: AluOp, target: Target, *, unary: bool = False) -> None:
    """The operator must be arithmetic, of two inputs (or, with ``unary``, of one or two)."""
    check_operator(ins, name, op, target)
    if op.bitwise or (op.arity != 2 and not unary):
        raise ins.refuse(
            None,
            f"{name} is {op}",
            limit="arithmetic operators" + ("" if unary else " of two inputs"),
            target=target,
        )


def check_integers(ins: Instruction, op: AluOp, names: tuple[str, ...], target: Target) -> None:
    """Bitwise operators need integers; ``names`` may name numbers too."""
    for name in names:
        value = getattr(ins, name)
        if isinstance(value, AccessPattern) and not value.dtype.is_integer:
            raise ins.refuse(
                name,
                f"is no integer, and {op} acts on bits",
                limit="integer dtypes with bitwise operators",
                target=target,
            )
        if isinstance(value, float):
            raise ins.refuse(
                None, f"{name} is {value!r}", limit=f"an integer with bitwise operator {op}", target=target
            )


# --- arithmetic -----------------------------------------------------------------------------------


def apply(op: AluOp, x: Any, y: Any, *, reverse: bool = False, out: Array | None = None) -> Array:
    """x op y, or y op x with ``reverse``; in ``out``, which may be x or y, where the operator can."""
    if op.arity == 1:
        return op(x)
    if reverse:
        x, y = y, x
    if out is not None and isinstance(op.function, np.ufunc):
        return np.asarray(op.function(x, y, out=out))
    return op(x, y)


def compute(machine: Machine, dst: AccessPattern, op: AluOp, x: Any, y: Any, *, reverse: bool = False) -> None:
    """dst = x op y in float32; straight into memory where that holds float32 already."""
    if dst.dtype == dtypes.float32 and not dst.indirect and isinstance(op.function, np.ufunc) and op.arity == 2:
        view = machine.view(dst, write=True)
        if view.ndim == 2:
            apply(op, x, y, reverse=reverse, out=view)
            return
    machine.store(dst, apply(op, x, y, reverse=reverse))


def integers(machine: Machine, operands: tuple[AccessPattern | int, ...], dst: AccessPattern) -> list[Array]:
    """Integer operands for a bitwise operator: as they are where dtypes agree, else as the bits of the widest."""
    tiles = [one for one in operands if isinstance(one, AccessPattern)]
    storage = dst.dtype.storage
    if any(one.dtype != dst.dtype for one in tiles):
        storage = np.dtype(f"u{max(one.dtype.itemsize for one in (*tiles, dst))}")
    found = []
    for one in operands:
        if isinstance(one, AccessPattern):
            found.append(machine.raw(one).astype(storage, copy=False))
        else:
            found.append(np.full((1, 1), one & 0xFFFFFFFF, np.uint32).astype(storage))
    return found


def store_integers(machine: Machine, dst: AccessPattern, values: Array) -> None:
    """Write integers of any width, modulo 2**bits of dst."""
    machine.store_raw(dst, dtypes.encode_int(values, dst.dtype))
