"""Mean and variance on the Vector Engine, in two steps that may be split over many tiles.

Semantics and limits: NKI documentation (0.6).
"""

from __future__ import annotations

import numpy as np

from isa.engine import Engine
from isa.instruction import Dst, Instruction, Machine, Src, instruction
from isa.operands import AccessPattern
from isa.target import Target
from isa.work import Work, WorkKind

__all__ = ["BnAggr", "BnStats"]

STATISTICS = 3
"""Values of one group of elements: count, mean, variance * count."""


@instruction(
    opcode=47,
    mnemonic="bn_stats",
    engines=(Engine.vector,),
    source="NKI 0.6 nki.isa.bn_stats",
)
class BnStats(Instruction):
    """dst (P, 6) = count, mean and variance * count of the elements of data at even positions, then at odd ones."""

    dst: AccessPattern = Dst()
    data: AccessPattern = Src(max_elements=512)

    def constrain(self, target: Target) -> None:
        if self.dst.partitions != self.data.partitions or self.dst.elements != 2 * STATISTICS:
            raise self.refuse(
                "dst",
                f"does not hold the statistics of data {self.data.shape}",
                target=target,
                limit=f"({self.data.partitions}, 6)",
            )

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.BN_STATS,
            elements=self.data.elements,
            rows=self.data.partitions,
            columns=self.dst.elements,
            flags=self.pattern_flags(),
        )

    def run(self, machine: Machine) -> None:
        data = machine.load(self.data)
        parts = []
        for half in (data[:, 0::2], data[:, 1::2]):
            count = half.shape[1]
            mean = half.mean(axis=1, dtype=np.float32) if count else np.zeros(len(half), np.float32)
            spread = np.square(half - mean[:, None]).sum(axis=1, dtype=np.float32)
            parts += [np.full(len(half), count, np.float32), mean, spread]
        machine.store(self.dst, np.stack(parts, axis=1))


@instruction(
    opcode=48,
    mnemonic="bn_aggr",
    engines=(Engine.vector,),
    source="NKI 0.6 nki.isa.bn_aggr",
)
class BnAggr(Instruction):
    """dst (P, 2) = mean and variance of the groups whose (count, mean, variance * count) stand in data."""

    dst: AccessPattern = Dst()
    data: AccessPattern = Src()

    def constrain(self, target: Target) -> None:
        if self.data.elements % STATISTICS:
            raise self.refuse(
                "data",
                "does not hold whole triples",
                target=target,
                limit="a multiple of 3 elements per partition, as bn_stats writes them",
            )
        if self.dst.partitions != self.data.partitions or self.dst.elements != 2:
            raise self.refuse(
                "dst",
                f"does not hold mean and variance of data {self.data.shape}",
                target=target,
                limit=f"({self.data.partitions}, 2)",
            )

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.BN_AGGR,
            elements=self.data.elements,
            rows=self.data.partitions,
            columns=self.dst.elements,
            flags=self.pattern_flags(),
        )

    def run(self, machine: Machine) -> None:
        groups = machine.load(self.data).reshape(self.data.partitions, -1, STATISTICS)
        count, mean, spread = groups[..., 0], groups[..., 1], groups[..., 2]
        with np.errstate(all="ignore"):
            total = count.sum(axis=1, keepdims=True, dtype=np.float32)
            joint = (count * mean).sum(axis=1, keepdims=True, dtype=np.float32) / total
            spread = spread + count * np.square(mean - joint)
            variance = spread.sum(axis=1, keepdims=True, dtype=np.float32) / total
        machine.store(self.dst, np.concatenate([joint, variance], axis=1))
