"""Random operands, derived from the declarations, for every instruction: it is either refused with a clear fault, or
both machines compute the same bits, the words in the program decode to its operands, and its work can be costed."""

import math
import sys
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import get_args, get_origin, get_type_hints

import numpy as np
import pytest

from isa import dtypes
from isa.activation import ActivationFunction
from isa.alu import ALU_OPS, AluOp
from isa.catalogue import INSTRUCTIONS
from isa.engine import Engine
from isa.faults import ConstraintFault, OutOfBoundsFault, RaceFault, UnverifiedFault
from isa.indirect import GROUP, TENSOR_GROUP
from isa.operands import AccessPattern, Dynamic, DynamicKind, Space
from isa.target import TARGETS
from perf_model.cost import cost
from perf_model.rates import load_rates
from trn_sim.machine import Core, Options

sys.path.insert(0, str(Path(__file__).parents[1] / "isa"))
from reference_machine import ReferenceMachine

DTYPES = (
    [dtypes.float32] * 3
    + [dtypes.bfloat16] * 2
    + [dtypes.float16, dtypes.int32, dtypes.uint32, dtypes.uint8, dtypes.uint16, dtypes.float8_e4m3]
)
MX_DTYPES = [dtypes.float8_e4m3fn_x4, dtypes.float8_e5m2_x4, dtypes.float4_e2m1fn_x4, dtypes.float8_e8m0fnu]
REFUSALS = (ConstraintFault, OutOfBoundsFault, RaceFault, UnverifiedFault)
TRIES = 40
MOST_TRIES = 600


class Bench:
    """Two machines with the same contents."""

    def __init__(self, rng, target):
        self.rng = rng
        self.core = Core(Options(target=target))
        self.reference = ReferenceMachine(target)
        self.pairs = []

    def tensor(self, space, shape, dtype):
        rng = self.rng
        if dtype.kind == "x":
            values = rng.integers(0, 1 << dtype.itemsize_bits, shape).astype(dtype.storage)
        elif dtype.kind in "iub":
            values = rng.integers(0, 8, shape).astype(dtype.storage)
        else:
            values = dtypes.encode(np.round(rng.standard_normal(shape) * 4).astype(np.float32) / 2, dtype)
        if space is Space.REGISTER:
            mine, mirror = self.core.new_register(3), self.reference.register(len(self.pairs), 3)
            mirror.buffer = mine.buffer
            self.reference.registers[mine.buffer] = 3
            self.pairs.append((mine, mirror))
            return mine, mirror
        if space is Space.HBM:
            mine = self.core.hbm(shape, dtype).pattern()
        else:
            mine = self.core.allocate(space, shape, dtype).pattern()
        mirror = self.reference.empty(shape, dtype, space=space)
        self.core.executor.store_raw(mine, values)
        self.reference.store_raw(mirror, values)
        self.pairs.append((mine, mirror))
        return mine, mirror

    def indirect(self, pair, group):
        """Random columns of a tile, as many as it has."""
        tile = pair[0]
        columns = -(-tile.elements // group)
        offsets = self.rng.integers(0, tile.elements, (group, columns)).astype(np.int32)
        table = np.tile(offsets, (tile.partitions // group, 1))
        index = self.tensor(Space.SBUF, table.shape, dtypes.int32)
        self.core.executor.store_raw(index[0], table)
        self.reference.store_raw(index[1], table)
        return tuple(
            AccessPattern(
                one.space, one.dtype, one.offset, ((0, one.elements),), start=one.start, partitions=one.partitions,
                storage=one.storage, dynamic=Dynamic(DynamicKind.COLUMN, where, 1, one.elements, group),
            )
            for one, where in zip(pair, index, strict=True)
        )  # fmt: skip

    def compare(self):
        for mine, mirror in self.pairs:
            if mine.space is Space.REGISTER:
                assert self.core.register_value(mine) == self.reference.read_register(mirror)
                continue
            left, right = self.core.executor.raw(mine), self.reference.raw(mirror)
            assert left.tobytes() == right.tobytes(), f"{mine}\n{left}\n{right}"


def immediate(rng, annotation, default):
    """A value of an immediate's type, the default now and then."""
    if default is not MISSING and rng.random() < 0.6:
        return default
    choices = list(get_args(annotation) or (annotation,))
    if get_origin(annotation) is tuple or any(get_origin(choice) is tuple for choice in choices):
        return ((1, 8),) if rng.random() < 0.5 else tuple(int(i) for i in rng.integers(0, 32, 32))
    choice = choices[rng.integers(len(choices))]
    if choice in (NoneType, None):
        return None
    if choice is AluOp:
        return list(ALU_OPS.values())[rng.integers(len(ALU_OPS))]
    if choice is ActivationFunction:
        from isa.activation import ACTIVATIONS

        return list(ACTIVATIONS.values())[rng.integers(len(ACTIVATIONS))]
    if isinstance(choice, type) and issubclass(choice, Enum):
        members = list(choice)
        return members[rng.integers(len(members))]
    if choice is bool:
        return bool(rng.integers(2))
    if choice is int:
        return int(rng.integers(0, 9))
    if choice is float:
        return float(rng.integers(-2, 3))
    return default if default is not MISSING else None


def build(cls, rng, bench, choice=DTYPES):
    """Two equal instances with random operands, one for each machine; dtypes from ``choice`` where they are free."""
    hints = get_type_hints(cls)
    specs = dict(cls.operands)
    partitions = int(rng.choice([1, 2, 16, 32, 64, 128]))
    free = int(rng.choice([1, 2, 8, 24, 512]))
    shape = (partitions, free)
    common = choice[rng.integers(len(choice))]
    mine, mirror = {}, {}
    for item in fields(cls):
        spec = specs.get(item.name)
        if item.name == "axis":
            mine[item.name] = mirror[item.name] = (1, (1,), -1, 0)[rng.integers(4)]
            continue
        if spec is None:
            mine[item.name] = mirror[item.name] = immediate(rng, hints[item.name], item.default)
            continue
        if spec.optional and item.default is not MISSING and rng.random() < 0.5:
            mine[item.name] = mirror[item.name] = None
            continue
        if spec.scalar and rng.random() < 0.5:
            mine[item.name] = mirror[item.name] = float(rng.integers(-2, 3))
            continue
        space = spec.spaces[rng.integers(len(spec.spaces))]
        dtype = common
        if spec.vector and rng.random() < 0.8:
            dtype = dtypes.float32
        if spec.dtypes is not None:
            allowed = spec.dtypes(bench.core.target) if callable(spec.dtypes) else spec.dtypes
            allowed = sorted(allowed)
            if dtype not in allowed and rng.random() < 0.9:
                dtype = dtypes.dtype(allowed[rng.integers(len(allowed))])
        size = (partitions, 1) if spec.vector else shape
        if item.name in ("vals", "dst_idx"):
            size = (partitions, 8)
        elif spec.writes and rng.random() < 0.3:
            size = ((free, partitions), (1, free), (partitions, 8), (partitions, 1), (partitions, 6), (partitions, 2))[
                rng.integers(6)
            ]
        if space is not Space.HBM and size[0] > 128:
            size = (128, size[1])
        if space is Space.PSUM and math.prod(size[1:]) * dtype.itemsize > 2048:
            space = Space.SBUF
        operands = [bench.tensor(space, size, dtype) for _ in range(2 if spec.many else 1)]
        group = TENSOR_GROUP if cls.engines == (Engine.tensor,) else GROUP
        if spec.indirect and size[0] % group == 0 and bench.core.target.generation >= 4 and rng.random() < 0.3:
            operands = [bench.indirect(operands[0], group)]
        mine[item.name] = tuple(o[0] for o in operands) if spec.many else operands[0][0]
        mirror[item.name] = tuple(o[1] for o in operands) if spec.many else operands[0][1]
    return cls(**mine), cls(**mirror)


@pytest.mark.parametrize("target", TARGETS.values(), ids=str)
@pytest.mark.parametrize("cls", INSTRUCTIONS.values(), ids=lambda cls: cls.__name__)
def test_refused_or_equal(cls, target):
    rng = np.random.default_rng([cls.opcode, target.generation])
    rates = load_rates(target)
    executed = 0
    for tried in range(MOST_TRIES):
        if tried >= TRIES and (executed or cls.__name__ in HARD_TO_HIT):
            break
        bench = Bench(rng, target)
        mine, mirror = build(cls, rng, bench)
        refused = None
        try:
            bench.core.issue(mine)
        except REFUSALS as fault:
            refused = fault
        if refused:
            assert refused.instruction == cls.mnemonic
            assert refused.file == __file__
            assert refused.message
            assert refused.limit or refused.advice or len(refused.message) > 15
            with pytest.raises(REFUSALS):
                bench.reference.execute(mirror)
            continue
        bench.reference.execute(mirror)
        bench.compare()
        executed += 1
        (template,) = bench.core.program.templates
        spent = cost(template.work, template.engine, rates)
        assert spent.interval_ps >= 0
        assert spent.latency_ps >= 0
        recorded = [pattern.words for _, pattern in bench.core.program.operands(0)]
        issued = []
        for name, _ in cls.operands:
            value = getattr(mine, name)
            issued += [v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, AccessPattern)]
        issued += [v.dynamic.index for v in issued if v.dynamic is not None]
        assert recorded == [v.words for v in issued]
        assert cls.mnemonic in next(bench.core.program.disassemble())
    if target.generation in cls.generations and cls.__name__ not in HARD_TO_HIT:
        assert executed, "no random instance was legal"


@pytest.mark.parametrize("cls", INSTRUCTIONS.values(), ids=lambda cls: cls.__name__)
def test_packed_numbers_and_scales_are_refused_or_equal(cls):
    """Whatever cannot take packed numbers apart says so."""
    rng = np.random.default_rng([cls.opcode, 44])
    for _ in range(TRIES):
        bench = Bench(rng, TARGETS["trn3"])
        mine, mirror = build(cls, rng, bench, MX_DTYPES)
        refused = None
        try:
            bench.core.issue(mine)
        except REFUSALS as fault:
            refused = fault
        if refused:
            assert refused.instruction == cls.mnemonic
            continue
        bench.reference.execute(mirror)
        bench.compare()


HARD_TO_HIT = {
    # legal operands hang together in ways that chance does not find; their own tests cover them
    "Activate2",
    "AllGather",
    "AllGatherV",
    "AllReduce",
    "AllToAll",
    "AllToAllV",
    "CollectivePermute",
    "CollectivePermuteImplicit",
    "CollectivePermuteImplicitReduce",
    "CoreBarrier",
    "CurrentRank",
    "ReduceScatter",
    "SendRecv",
    "DmaTranspose",
    "DmaCompute",
    "LocalGather",
    "NonzeroWithCount",
    "SequenceBounds",
    "Topk",
    "TopK",
    "StreamShuffle",
    "RandSetState",
    "RandGetState",
    "Iota",
    "AffineSelect",
    "TensorTranspose",
    "VectorTranspose",
    "Matmul",
    "MatmulMx",
    "QuantizeMx",
    "SetRngSeed",
    "RegisterLoad",
    "RegisterStore",
    "CompareBranch",
    "RegisterAdd",
    "Dropout",
    "ActivationReduce",
    "RangeSelect",
}
