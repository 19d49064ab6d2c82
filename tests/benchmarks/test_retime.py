"""Timing a recorded stream of a million instructions again: speed, and the memory the stream takes."""

import gc
import time

import numpy as np
import pytest

from isa import dtypes
from isa.dma import DmaCopy
from isa.operands import AccessPattern, Space
from isa.program import Program
from isa.target import TRN2
from isa.tensor import Matmul
from isa.vector_move import TensorCopy
from memory_model.hazards import edges
from perf_model.profile import profile
from perf_model.rates import load_rates
from perf_model.schedule import schedule
from perf_model.stream import stream_of

INSTRUCTIONS = 1_000_000
LEAST_PER_SECOND = 3e6
MOST_BYTES = 300

BF16, FP32 = dtypes.dtype("bfloat16"), dtypes.dtype("float32")
TILES = 8


def on_chip(space, dtype, columns, offset):
    return AccessPattern(space, dtype, offset, ((1, columns),), partitions=128)


def blocked_matmul():
    """One step of a tiled matmul per buffer: two loads, four accumulating matmuls, a copy out of PSUM, a store."""
    for tile in range(TILES):
        weights = on_chip(Space.SBUF, BF16, 128, tile * 8192)
        moving = on_chip(Space.SBUF, BF16, 512, tile * 8192 + 1024)
        result = on_chip(Space.SBUF, FP32, 512, tile * 8192 + 4096)
        bank = on_chip(Space.PSUM, FP32, 512, tile * 2048)
        rows = AccessPattern(Space.HBM, BF16, tile * 2**17, ((512, 128), (1, 512)), buffer=0)
        yield DmaCopy(dst=weights, src=AccessPattern(Space.HBM, BF16, 0, ((512, 128), (1, 128)), buffer=1))
        yield DmaCopy(dst=moving, src=rows)
        for step in range(4):
            yield Matmul(dst=bank, stationary=weights, moving=moving, accumulate=step > 0)
        yield TensorCopy(dst=result, src=bank)
        yield DmaCopy(dst=AccessPattern(Space.HBM, FP32, tile * 2**18, ((512, 128), (1, 512)), buffer=2), src=result)


def recorded(count):
    program = Program(TRN2)
    source = program.source_id("kernel.py", 1, "kernel")
    templates = {}
    step = []
    for ins in blocked_matmul():
        key = ins.key()
        if key not in templates:
            ins.check(TRN2)
            templates[key] = program.add_template(ins, ins.select_engine(TRN2), ins.queue(TRN2), ins.work(TRN2))
        step.append((templates[key], ins))
    for index in range(count):
        template, ins = step[index % len(step)]
        program.append(template, source, ins)
    return program


@pytest.mark.benchmark
def test_a_million_instructions_are_timed_again(capsys):
    program = recorded(INSTRUCTIONS)
    dependencies = edges(program)
    edge_bytes = sum(np.asarray(a).nbytes for a in (dependencies.start, dependencies.producer, dependencies.kind))
    per_instruction = (program.nbytes + edge_bytes) / len(program)
    rates = load_rates("trn2")
    stream, _ = stream_of(program, dependencies, rates)
    schedule(stream)  # loads compiled code from the disk

    def best(function, repeats=5):
        times = []
        for _ in range(repeats):
            gc.collect()
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return min(times)

    seconds = best(lambda: schedule(stream))
    whole = best(lambda: profile(program, dependencies, rates=rates).total_ns, 3)
    speed = len(stream) / seconds
    with capsys.disabled():
        print(
            f"\n{len(stream):,} instructions, {len(stream.producer) / len(stream):.1f} edges each: schedule "
            f"{seconds * 1e3:.0f} ms = {speed / 1e6:.1f} M/s (limit {LEAST_PER_SECOND / 1e6:g} M/s), whole profile "
            f"{whole * 1e3:.0f} ms, {per_instruction:.0f} bytes per instruction (limit {MOST_BYTES})"
        )
    assert speed >= LEAST_PER_SECOND
    assert per_instruction <= MOST_BYTES
