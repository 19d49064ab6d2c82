"""Issuing: what a core records, and what it says when something is wrong."""

import inspect

import numpy as np
import pytest

from isa import dtypes
from isa.alu import alu_op
from isa.faults import CapacityFault, ConstraintFault, KernelFault, UninitializedReadFault
from isa.operands import Space
from isa.target import TRN1, TRN2
from isa.vector import TensorTensor
from trn_sim.machine import Core, Options, current_core, use_core

ADD = alu_op("add")


def make(count=3, shape=(128, 64), dtype=dtypes.float32, target=TRN2, **options):
    core = Core(Options(target=target, **options))
    return core, [core.allocate(Space.SBUF, shape, dtype, name=f"t{i}").pattern() for i in range(count)]


def line_of(marker):
    frame = inspect.currentframe().f_back
    lines, first = inspect.getsourcelines(frame.f_code)
    return first + next(i for i, text in enumerate(lines) if marker in text and "line_of" not in text)


def test_one_template_serves_equal_shapes():
    core, tiles = make(6)
    for tile in tiles:
        core.executor.store(tile, np.ones((128, 64)))
    for i in range(4):
        core.issue(TensorTensor(dst=tiles[i], data1=tiles[4], data2=tiles[5], op=ADD))
    assert len(core.program) == 4
    assert len(core.program.templates) == 1
    assert [row[0] for row in core.program.rows()] == [0, 0, 0, 0]


def test_source_line_is_the_users():
    core, tiles = make()
    for tile in tiles:
        core.executor.store(tile, np.ones((128, 64)))
    core.issue(TensorTensor(dst=tiles[0], data1=tiles[1], data2=tiles[2], op=ADD))  # ISSUED
    source = core.program.source_of(0)
    assert (source.file, source.line, source.function) == (
        __file__,
        line_of("# ISSUED"),
        "test_source_line_is_the_users",
    )


def test_fault_carries_instruction_target_and_line():
    core, tiles = make()
    with pytest.raises(UninitializedReadFault) as caught:
        core.issue(TensorTensor(dst=tiles[0], data1=tiles[1], data2=tiles[2], op=ADD))  # FAULTY
    fault = caught.value
    assert fault.instruction == "tensor_tensor"
    assert fault.target == "trn2, NeuronCore-v3"
    assert (fault.file, fault.line) == (__file__, line_of("# FAULTY"))
    assert fault.as_dict()["category"] == "uninitialized_read"


def test_illegal_instruction_is_not_recorded():
    core, tiles = make(2)
    other = core.allocate(Space.SBUF, (128, 32), dtypes.float32).pattern()
    with pytest.raises(ConstraintFault):
        core.issue(TensorTensor(dst=tiles[0], data1=tiles[1], data2=other, op=ADD))
    assert len(core.program) == 0


def test_timing_only_computes_nothing():
    core, tiles = make(values=False)
    core.issue(TensorTensor(dst=tiles[0], data1=tiles[1], data2=tiles[2], op=ADD))  # unwritten: nobody looks
    assert len(core.program) == 1
    assert not core.peek(tiles[0]).any()


def test_explicit_edges():
    core, tiles = make()
    for tile in tiles:
        core.executor.store(tile, np.ones((128, 64)))
    first = core.issue(TensorTensor(dst=tiles[0], data1=tiles[1], data2=tiles[2], op=ADD))
    second = core.issue(TensorTensor(dst=tiles[0], data1=tiles[1], data2=tiles[2], op=ADD))
    core.add_edge(second, first)
    assert core.program.edges == [(second, first)]
    with pytest.raises(KernelFault, match="cannot wait"):
        core.add_edge(first, second)


def test_registers_wrap_to_32_bits():
    core = Core(Options(target=TRN2))
    register = core.new_register(7)
    assert core.register_value(register) == 7
    core.executor.write_register(register, 2**31)
    assert core.register_value(register) == -(2**31)


def test_tiles_return_to_the_allocator():
    core = Core(Options(target=TRN1))
    for _ in range(100):  # 100 x 64 KiB pass through 192 KiB
        tile = core.allocate(Space.SBUF, (128, 16384), dtypes.float32)
    del tile
    held = [core.allocate(Space.SBUF, (128, 16384), dtypes.float32) for _ in range(3)]
    with pytest.raises(CapacityFault) as caught:
        core.allocate(Space.SBUF, (128, 16384), dtypes.float32)  # FULL
    assert caught.value.line == line_of("# FULL")
    assert len(held) == 3


def test_hbm_arrays_are_used_in_place():
    core = Core(Options(target=TRN2))
    array = np.zeros((4, 8), np.float32)
    storage = core.hbm(array.shape, dtypes.float32, name="x", kind="input", array=array)
    core.executor.store(storage.pattern(), np.arange(32, dtype=np.float32))
    np.testing.assert_array_equal(array, np.arange(32).reshape(4, 8))
    assert core.program.buffers[0].name == "x"


def test_current_core():
    with pytest.raises(KernelFault, match="only inside a kernel"):
        current_core()
    core = Core(Options(target=TRN2))
    with use_core(core) as used:
        assert used is core is current_core()
    with pytest.raises(KernelFault):
        current_core()


@pytest.mark.parametrize(
    ("variable", "value"),
    [("NKI_PRECISE_FP", "2"), ("NEURON_PLATFORM_TARGET_OVERRIDE", "gpu"), ("TRN_SIM_UNINITIALIZED", "x")],
)
def test_environment_is_validated(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=value):
        Options.from_environment()


def test_environment(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "gen2")
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    options = Options.from_environment()
    assert options.target is TRN1
    assert not options.precise
    assert Options.from_environment(target="trn2").target is TRN2


def test_exports_are_what_is_offered():
    import trn_sim

    assert set(trn_sim.__all__) == {"__version__", *trn_sim._EXPORTS}
    assert trn_sim.Core is Core
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = trn_sim.nothing
