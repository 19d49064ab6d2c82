"""The affine sequences of iota and affine_select: offset + partition * multiplier + steps . position, in int32."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from isa.instruction import Instruction
from isa.operands import AccessPattern
from isa.target import Target

__all__ = ["MAX_PAIRS", "Pattern", "affine", "check_affine", "check_int32", "column", "ramp"]

Pattern = tuple[tuple[int, int], ...]
MAX_PAIRS = 4
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


def check_affine(ins: Instruction, pattern: Pattern, channel_multiplier: int, elements: int, target: Target) -> None:
    """Refuse a pattern that is not one to four [step, count] pairs covering ``elements``."""
    if not 1 <= len(pattern) <= MAX_PAIRS or any(len(pair) != 2 for pair in pattern):
        raise ins.refuse(
            None,
            f"pattern {pattern} is not a list of [step, count] pairs",
            limit=f"1 to {MAX_PAIRS} pairs",
            target=target,
        )
    if any(count < 1 for _, count in pattern):
        raise ins.refuse(None, f"pattern {pattern} has a count below 1", limit="counts of 1 and more", target=target)
    covered = prod(count for _, count in pattern)
    if covered != elements:
        raise ins.refuse(
            "dst",
            f"pattern {pattern} generates {covered} values per partition, not {elements}",
            limit="product of the counts equals elements per partition",
            target=target,
        )
    for name, value in (("channel_multiplier", channel_multiplier), *(("step", step) for step, _ in pattern)):
        check_int32(ins, name, value, target)


def check_int32(ins: Instruction, name: str, value: object, target: Target) -> None:
    """Refuse an immediate that a 32-bit register cannot hold."""
    if isinstance(value, int) and not _INT32_MIN <= value <= _INT32_MAX:
        raise ins.refuse(None, f"{name} is {value}", limit="32-bit integers", target=target)


@lru_cache(maxsize=256)
def ramp(pattern: Pattern) -> npt.NDArray[np.int32]:
    """The part that is the same in all partitions, flat."""
    values = np.zeros((1,), np.int64)
    for step, count in pattern:
        values = np.add.outer(values, np.arange(count, dtype=np.int64) * step).ravel()
    wrapped = values.astype(np.int32)  # as the engine does
    wrapped.flags.writeable = False
    return wrapped


def column(operand: AccessPattern, offset: int, channel_multiplier: int) -> npt.NDArray[np.int32]:
    """The part that is the same in a whole partition, (partitions,); partition 0 is the operand's first."""
    values = offset + np.arange(operand.partitions, dtype=np.int64) * channel_multiplier
    return values.astype(np.int32)


def affine(operand: AccessPattern, pattern: Pattern, offset: int, channel_multiplier: int) -> npt.NDArray[np.int32]:
    """The sequence for the partitions of ``operand``, (partitions, elements)."""
    return column(operand, offset, channel_multiplier)[:, None] + ramp(pattern)
