"""Streams written by hand: instructions as (engine, work) with their producers, without operands or a kernel."""

from dataclasses import dataclass

import numpy as np

from isa.catalogue import INSTRUCTIONS
from isa.engine import Engine
from isa.program import Program, Template
from isa.target import resolve_target
from isa.work import Work, WorkFlag, WorkKind
from perf_model.rates import load_rates
from perf_model.schedule import Schedule, schedule, simulate
from perf_model.stream import Stream, stream_of

RAW, WAR, WAW, EXPLICIT = range(4)
MNEMONICS = {
    Engine.tensor: "nc_matmul",
    Engine.vector: "tensor_copy",
    Engine.scalar: "activation",
    Engine.gpsimd: "iota",
    Engine.dma: "dma_copy",
    Engine.sync: "register_move",
}
OPCODES = {ins.mnemonic: opcode for opcode, ins in INSTRUCTIONS.items()}


@dataclass
class Edges:
    start: np.ndarray
    producer: np.ndarray
    kind: np.ndarray


class Script:
    def __init__(self, target="trn2", **overrides):
        self.rates = load_rates(target)
        for name, value in overrides.items():
            self.rates = self.rates.override(name.replace("__", "."), value)
        self.program = Program(resolve_target(target))
        self.after = []
        self.templates = {}

    def add(self, engine, work, *after, queue=Engine.sync, line=1):
        """Append an instruction; ``after`` holds producers, or (producer, kind of edge)."""
        key = (engine, work, queue)
        if key not in self.templates:
            self.templates[key] = len(self.program.templates)
            self.program.templates.append(
                Template(
                    opcode=OPCODES[MNEMONICS[engine]],
                    engine=engine,
                    queue=int(queue) if engine is Engine.dma else 0,
                    work=work,
                    operands=0,
                    reads=0,
                    writes=0,
                    constants=(),
                    fields=(),
                    numbers=(),
                )
            )
        source = self.program.source_id("kernel.py", line, "kernel")
        self.program._rows.extend((self.templates[key], source, 0))
        self.after.append([item if isinstance(item, tuple) else (item, RAW) for item in after])
        return len(self.program) - 1

    def matmul(self, *after, n=512, m=128, k=128, flags=0, tile=(128, 128, 0, 0), **more):
        work = Work(
            kind=WorkKind.MATMUL, elements=n, rows=k, columns=m, flags=int(flags), flops=2 * k * m * n, row_tile=tile
        )
        return self.add(Engine.tensor, work, *after, **more)

    def vector(self, *after, n=512, flags=WorkFlag.SRC_SBUF, kind=WorkKind.REDUCE, **more):
        return self.add(Engine.vector, Work(kind=kind, elements=n, rows=128, flags=int(flags)), *after, **more)

    def activation(self, *after, n=512, table=0, flags=WorkFlag.SRC_SBUF, **more):
        work = Work(kind=WorkKind.ACTIVATION, elements=n, rows=128, flags=int(flags), table=table)
        return self.add(Engine.scalar, work, *after, **more)

    def iota(self, *after, n=512, **more):
        return self.add(Engine.gpsimd, Work(kind=WorkKind.IOTA, elements=n, rows=128), *after, **more)

    def dma(
        self,
        *after,
        nbytes=4096 * 128,
        descriptors=128,
        flags=WorkFlag.HBM_READ | WorkFlag.HARDWARE_DGE,
        queue=Engine.sync,
        **more,
    ):
        work = Work(kind=WorkKind.DMA, nbytes=nbytes, descriptors=descriptors, flags=int(flags), rows=128)
        return self.add(Engine.dma, work, *after, queue=queue, **more)

    def edges(self):
        flat = [edge for edges in self.after for edge in edges]
        return Edges(
            start=np.cumsum([0, *map(len, self.after)]).astype(np.int32),
            producer=np.array([p for p, _ in flat], np.int32),
            kind=np.array([k for _, k in flat], np.int8),
        )

    def stream(self) -> Stream:
        return stream_of(self.program, self.edges(), self.rates)[0]

    def run(self) -> Schedule:
        """Schedule with the compiled code, having checked that the readable one agrees."""
        stream = self.stream()
        fast = schedule(stream)
        assert_equal(fast, simulate(stream))
        return fast

    def ps(self, name):
        return round(1e3 * self.rates.value(name))


def assert_equal(fast, readable):
    for name in Schedule.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(fast, name), getattr(readable, name), err_msg=name)
