"""Tiles of the PE array: ``tile_size`` and ``tile_position`` of matrix products."""

from __future__ import annotations

from isa.instruction import Instruction
from isa.target import Target

__all__ = ["Pair", "check_pairs", "check_untiled", "tile"]

Pair = tuple[int, int] | tuple[()] | None


def tile(size: Pair, position: Pair) -> tuple[int, int, int, int]:
    """(row size, column size, start row, start column) of the part of the PE array in use."""
    return (*size, *position) if size and position else (128, 128, 0, 0)


def check_pairs(ins: Instruction, size: Pair, position: Pair, target: Target) -> bool:
    """``tile_size`` and ``tile_position`` are pairs, and given together; False where neither is."""
    if bool(position) != bool(size):
        missing = "tile_size" if position else "tile_position"
        raise ins.refuse(
            None, f"{missing} is missing", limit="tile_position and tile_size are given together", target=target
        )
    if not size or not position:
        return False
    if len(size) != 2 or len(position) != 2:
        raise ins.refuse(
            None, f"tile_size {size} and tile_position {position}", limit="pairs (rows, columns)", target=target
        )
    return True


def check_untiled(ins: Instruction, position: Pair, target: Target) -> None:
    """Indirect operands go with the whole PE array."""
    if any(position or ()) and any(value.indirect for _, value in ins.tensors()):
        raise ins.refuse(
            None, f"tile_position {position} with an indirect operand", limit="tile_position (0, 0)", target=target
        )
