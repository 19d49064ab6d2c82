"""Tensor indirection of NeuronCore-v4: an operand of a compute engine whose columns are picked by offsets in SBUF.

Offset i of an operand is the distance, in elements, of its column i from the start of the view it was made of; it is
the same in all partitions.  Offsets lie in a tile of as many partitions as the operand, in snake order over a group of
partitions: offset i is ``index[i % G, i // G]``, with G = 32 on the Tensor Engine and 16 on the others.  Reading
gathers columns, writing scatters them, later ones over earlier ones.

Limits: NKI documentation (0.6) of ``NkiTensor.indirect`` and of each instruction that takes such views.  Where it is
silent:

- Whether the groups beyond the first may hold other offsets: they have to hold the same ones, or nobody knows what
  the chip does.
- Dtypes of the offsets: 16- and 32-bit integers.
- Time: nothing is published; an indirect operand counts as one that is not contiguous.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from isa.engine import Engine
from isa.faults import UnverifiedFault
from isa.operands import AccessPattern, Space
from isa.target import Target

if TYPE_CHECKING:
    from isa.instruction import Instruction, OperandSpec

__all__ = [
    "FIRST_GENERATION",
    "GROUP",
    "INDEX_DTYPES",
    "TENSOR_GROUP",
    "check_engines",
    "check_indirect",
    "column_offsets",
    "for_tensor_engine",
]

FIRST_GENERATION = 4
QUADRANT = 32
GROUP, TENSOR_GROUP = 16, 32
"""Partitions over which offsets snake; on the Tensor Engine."""

INDEX_DTYPES = frozenset({"int16", "int32", "uint16", "uint32"})


def check_indirect(ins: Instruction, name: str, spec: OperandSpec, value: AccessPattern, target: Target) -> None:
    """Rules of one indirect operand.

    Raises:
        ConstraintFault: the operand, the generation or the tile of offsets does not allow it.
    """
    if target.generation < FIRST_GENERATION:
        raise ins.refuse(
            name,
            "is indirect, which does not exist on this generation",
            limit=f"tensor indirection from NeuronCore-v{FIRST_GENERATION} on",
            target=target,
            advice="gather with nc_n_gather or local_gather, or in the DMA that brings the tile",
        )
    if not spec.indirect:
        able = [other for other, known in ins.operands if known.indirect]
        raise ins.refuse(
            name,
            "is indirect, which this operand cannot be",
            limit=f"indirect operands: {', '.join(able) or 'none'}",
            target=target,
            advice="gather it into a tile with tensor_copy first",
        )
    assert value.dynamic is not None
    index, group = value.dynamic.index, value.dynamic.group
    if index.space is not Space.SBUF or index.dtype not in INDEX_DTYPES:
        raise ins.refuse(
            name,
            f"has its offsets in {index.space.name}, dtype {index.dtype}",
            limit="offsets in SBUF, dtypes " + ", ".join(sorted(INDEX_DTYPES)),
            target=target,
        )
    if value.partitions % group:
        raise ins.refuse(
            name,
            f"is indirect over {value.partitions} partitions",
            limit=f"a multiple of {group} partitions on this engine",
            target=target,
        )
    if value.elements > group * index.elements:
        raise ins.refuse(
            name,
            f"takes {value.elements} offsets where its index {index.shape} holds {group * index.elements}",
            limit=f"{group} offsets for each column of the index: offset i is index[i % {group}, i // {group}]",
            target=target,
            advice="pass num_elem=, or more columns of offsets",
        )
    if index.start % QUADRANT:
        raise ins.refuse(
            name,
            f"has its offsets from partition {index.start} on",
            limit="offsets start at partition 0, 32, 64 or 96",
            target=target,
        )
    _check_neighbour(ins, name, spec, value, target)


def _check_neighbour(ins: Instruction, name: str, spec: OperandSpec, value: AccessPattern, target: Target) -> None:
    """The offsets lie in the partitions of the data they are used with."""
    assert value.dynamic is not None
    start = value.dynamic.index.start
    partner = getattr(ins, spec.indirect or name)
    if not isinstance(partner, AccessPattern):
        return
    wanted: int | None = partner.start
    if partner is not value and partner.space is Space.PSUM:  # then it is its offsets that count
        wanted = partner.dynamic.index.start if partner.dynamic is not None and partner.indirect else None
    if wanted is not None and start != wanted:
        raise ins.refuse(
            name,
            f"has its offsets from partition {start} on where '{spec.indirect}' starts at {wanted}",
            limit="equal start partitions",
            target=target,
        )


def check_engines(ins: Instruction, target: Target) -> None:
    """Rules that depend on the engine, for an instruction with an indirect operand.

    Raises:
        ConstraintFault: the engine cannot do it.
    """
    engine = ins.select_engine(target)
    able = ins.indirect_engines or ins.engines
    if engine not in able:
        raise ins.refuse(
            None,
            f"an operand is indirect on the {engine.title} Engine",
            limit="engine: " + " or ".join(one.name for one in able),
            target=target,
        )
    if engine is Engine.scalar:
        for name, value in ins.tensors(reads=False):
            if value.indirect and value.space is Space.PSUM:
                raise ins.refuse(
                    name,
                    "is scattered into PSUM by the Scalar Engine",
                    limit="SBUF, or another engine",
                    target=target,
                    advice="scatter with tensor_copy on the Vector Engine",
                )


def for_tensor_engine(operand: AccessPattern) -> AccessPattern:
    """``operand`` as the Tensor Engine reads its offsets."""
    dynamic = operand.dynamic
    if dynamic is None or not operand.indirect:
        return operand
    return AccessPattern(
        operand.space,
        operand.dtype,
        operand.offset,
        operand.pairs,
        start=operand.start,
        partitions=operand.partitions,
        storage=operand.storage,
        dynamic=replace(dynamic, group=TENSOR_GROUP),
    )


def column_offsets(operand: AccessPattern, index: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The offsets of an indirect operand, one for each of its columns.

    Args:
        index: the values of its index, (partitions, columns).

    Raises:
        UnverifiedFault: groups of partitions hold different offsets.
    """
    assert operand.dynamic is not None
    group = operand.dynamic.group
    snakes = (
        index.astype(np.int64).reshape(-1, group, index.shape[1]).transpose(0, 2, 1).reshape(-1, group * index.shape[1])
    )
    used: npt.NDArray[np.int64] = snakes[:, : operand.elements]
    if (used != used[0]).any():
        raise UnverifiedFault(
            f"{operand}: groups of {group} partitions hold different offsets",
            advice="repeat the offsets in every group; no text says what else the chip does",
        )
    offsets: npt.NDArray[np.int64] = used[0]
    return offsets
