"""DMA instructions against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa._descriptors import descriptors
from isa.alu import alu_op
from isa.dma import DmaCopy, DmaTranspose
from isa.dma_compute import DmaCompute
from isa.engine import Engine
from isa.enums import DgeMode, OobMode
from isa.faults import ConstraintFault, OutOfBoundsFault, RaceFault
from isa.operands import AccessPattern, Dynamic, DynamicKind, Space
from isa.program import Program
from isa.target import TRN1, TRN2, TRN3, Target
from isa.work import WorkFlag, WorkKind
from tests.isa.reference_machine import ReferenceMachine

HBM, SBUF, PSUM = Space.HBM, Space.SBUF, Space.PSUM
ADD = alu_op("add")


@pytest.fixture
def machine() -> ReferenceMachine:
    return ReferenceMachine(TRN2)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(*shape: int, high: int = 1000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, high, shape)


def by_rows(table: AccessPattern, index: AccessPattern, rows: int) -> AccessPattern:
    """``rows`` rows of an HBM tensor, chosen at run time by ``index`` (vector_offset)."""
    stride, count = table.pairs[0]
    return AccessPattern(
        HBM,
        table.dtype,
        table.offset,
        ((stride, rows), *table.pairs[1:]),
        buffer=table.buffer,
        dynamic=Dynamic(DynamicKind.VECTOR, index, stride, count),
    )


def shifted(tensor: AccessPattern, index: AccessPattern, rows: int) -> AccessPattern:
    """``rows`` consecutive rows of an HBM tensor from a run-time row on (scalar_offset)."""
    stride, count = tensor.pairs[0]
    return AccessPattern(
        HBM,
        tensor.dtype,
        tensor.offset,
        ((stride, rows), *tensor.pairs[1:]),
        buffer=tensor.buffer,
        dynamic=Dynamic(DynamicKind.SCALAR, index, stride, count - rows + 1),
    )


def part(tensor: AccessPattern, pairs: tuple[tuple[int, int], ...], offset: int = 0, **changes: Any) -> AccessPattern:
    """Other pairs (and an offset in elements) on the storage of a tensor."""
    place = {"start": tensor.start, "partitions": tensor.partitions, "buffer": tensor.buffer, **changes}
    return AccessPattern(tensor.space, tensor.dtype, tensor.offset + offset * tensor.dtype.itemsize, pairs, **place)


# --- dma_copy -------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [HBM, SBUF])
@pytest.mark.parametrize("target", [HBM, SBUF])
def test_copy_between_memories(machine: ReferenceMachine, source: Space, target: Space) -> None:
    data = random(128, 6)
    src, dst = machine.tile(data, space=source), machine.empty((128, 6), "float32", space=target)
    machine.execute(DmaCopy(dst, src))
    assert np.array_equal(machine.values(dst), data)


def test_copy_keeps_row_major_order_over_shapes(machine: ReferenceMachine) -> None:
    data = integers(4, 6).astype(np.int32)
    dst = machine.empty((8, 3), "int32")
    machine.execute(DmaCopy(dst, machine.tile(data, space=HBM)))
    assert np.array_equal(machine.values(dst), data.reshape(8, 3))


def test_copy_of_strided_patterns(machine: ReferenceMachine) -> None:
    """Columns of an HBM matrix to every second partition of a tile."""
    data = integers(16, 10).astype(np.int32)
    columns = part(machine.tile(data, space=HBM), ((10, 16), (3, 3)), offset=1)
    tile = machine.empty((32, 3), "int32")
    machine.execute(DmaCopy(part(tile, tile.pairs, partitions=16, step=2), columns))
    assert np.array_equal(machine.values(tile)[::2], data[:, 1::3])
    assert not machine.values(tile)[1::2].any()


def test_copy_is_free_of_the_start_partition_rule(machine: ReferenceMachine) -> None:
    data = random(100, 2)
    dst = machine.empty((100, 2), "float32", start=17)
    machine.execute(DmaCopy(dst, machine.tile(data, space=HBM)))
    assert np.array_equal(machine.values(dst), data)


def test_copy_moves_bits_of_equal_dtypes(machine: ReferenceMachine) -> None:
    nan = np.array([[0x7FC12345, 0xFF812345, 0x00000001]], np.uint32).view(np.float32)
    src, dst = machine.empty((1, 3), "float32", space=HBM), machine.empty((1, 3), "float32")
    machine.store_raw(src, nan.view(machine.view(src).dtype))
    machine.execute(DmaCopy(dst, src))
    assert machine.view(dst).tobytes() == nan.tobytes()


def test_copy_converts_through_float32(machine: ReferenceMachine) -> None:
    numbers = np.array([[2**24 + 1, -7, 2**31 - 1]], np.int32)
    wide, narrow = machine.empty((1, 3), "uint32"), machine.empty((1, 3), "int8")
    for dst in (wide, narrow):
        machine.execute(DmaCopy(dst, machine.tile(numbers, space=HBM)))
    assert machine.values(wide)[0, 0] == 2**24  # float32 holds 24 bits
    assert machine.values(narrow).tolist() == [[127, -7, 127]]
    half = machine.empty((1, 2), "bfloat16")
    machine.execute(DmaCopy(half, machine.tile(np.array([[1 + 2**-8, 1 + 3 * 2**-8]], np.float32))))
    assert machine.values(half).tolist() == [[1.0, 1 + 2**-6]]  # ties to even


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_copy_equals_numpy_on_random_patterns(data: st.DataObject) -> None:
    machine = ReferenceMachine(TRN2)
    rows, columns, depth = (data.draw(st.integers(1, 5)) for _ in range(3))
    steps = [data.draw(st.integers(1, 3)) for _ in range(3)]
    big = integers(rows * steps[0], columns * steps[1], depth * steps[2]).astype(np.int32)
    whole = machine.tile(big, space=HBM)
    pairs = tuple(
        (stride * step, count)
        for (stride, _), step, count in zip(whole.pairs, steps, (rows, columns, depth), strict=True)
    )
    dst = machine.empty((rows * columns, depth), "int32")
    ins = DmaCopy(dst, part(whole, pairs))
    machine.execute(ins)
    expected = big[:: steps[0], :: steps[1], :: steps[2]].reshape(rows * columns, depth)
    assert np.array_equal(machine.values(dst), expected)
    assert ins.work(TRN2).descriptors == count_descriptors(machine, ins.dst, ins.src)


def addresses(machine: ReferenceMachine, operand: AccessPattern) -> np.ndarray:
    """Byte address of every element, partitions far apart."""
    view = machine.view(operand)
    places = sum(
        np.arange(n).reshape([-1] + [1] * (view.ndim - 1 - axis)) * stride
        for axis, (n, stride) in enumerate(zip(view.shape, view.strides, strict=True))
    )
    return np.broadcast_to(places, view.shape).ravel()


def count_descriptors(machine: ReferenceMachine, dst: AccessPattern, src: AccessPattern) -> int:
    """Breaks in the walk over both operands; an oracle where every pattern's runs have one length."""
    a, b = addresses(machine, dst), addresses(machine, src)
    broken = (np.diff(a) != dst.dtype.itemsize) | (np.diff(b) != src.dtype.itemsize)
    return 1 + int(broken.sum())


def test_copy_at_a_scalar_run_time_offset(machine: ReferenceMachine) -> None:
    data = integers(10, 4).astype(np.int32)
    table, dst = machine.tile(data, space=HBM), machine.empty((3, 4), "int32")
    for index in (machine.tile(np.array([[5]], np.int32)), machine.register(2, 5)):
        machine.execute(DmaCopy(dst, shifted(table, index, 3)))
        assert np.array_equal(machine.values(dst), data[5:8])
    machine.execute(DmaCopy(shifted(table, machine.register(2, 0), 3), dst))
    assert np.array_equal(machine.values(table)[:3], data[5:8])


@pytest.mark.parametrize("value", [-1, 8])
def test_scalar_offset_out_of_bounds(machine: ReferenceMachine, value: int) -> None:
    table = machine.tile(integers(10, 4).astype(np.int32), space=HBM)
    dst = machine.tile(np.full((3, 4), 77, np.int32))
    src = shifted(table, machine.register(0, value), 3)
    with pytest.raises(OutOfBoundsFault, match=rf"index {value} is out of bounds[\s\S]*indices 0 to 7"):
        machine.execute(DmaCopy(dst, src))
    machine.execute(DmaCopy(dst, src, oob_mode=OobMode.skip))
    assert (machine.values(dst) == 77).all()


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_gather(machine: ReferenceMachine, dtype: str) -> None:
    data = random(50, 7)
    rows = integers(16, 1, high=50).astype(dtype)
    dst = machine.empty((16, 7), "float32")
    machine.execute(DmaCopy(dst, by_rows(machine.tile(data, space=HBM), machine.tile(rows), 16)))
    assert np.array_equal(machine.values(dst), data[rows.ravel().astype(int)])


def test_gather_into_another_shape_and_dtype(machine: ReferenceMachine) -> None:
    data = integers(9, 4).astype(np.int32)
    rows = np.array([[8], [0]], np.int32)
    dst = machine.empty((4, 2), "float32")
    machine.execute(DmaCopy(dst, by_rows(machine.tile(data, space=HBM), machine.tile(rows), 2)))
    assert np.array_equal(machine.values(dst), data[[8, 0]].reshape(4, 2))


def test_scatter(machine: ReferenceMachine) -> None:
    data = integers(4, 3).astype(np.int32)
    table = machine.empty((10, 3), "int32", space=HBM)
    rows = np.array([[7], [2], [7], [0]], np.uint32)
    machine.execute(DmaCopy(by_rows(table, machine.tile(rows), 4), machine.tile(data)))
    expected = np.zeros((10, 3), int)
    expected[[7, 2, 7, 0]] = data  # the later row wins
    assert np.array_equal(machine.values(table), expected)


@pytest.mark.parametrize("src", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("dst", ["float32", "bfloat16", "int16"])
@pytest.mark.parametrize("mode", [OobMode.error, OobMode.skip])
def test_rows_convert_through_float32(machine: ReferenceMachine, src: str, dst: str, mode: OobMode) -> None:
    data = integers(8, 3, high=100).astype(np.int32 if src == "int32" else np.float32)
    rows = np.array([[5], [0], [7], [3]] if mode is OobMode.error else [[5], [-1], [7], [8]], np.int32)
    good = (rows.ravel() >= 0) & (rows.ravel() < 8)
    tile = machine.empty((4, 3), dst)
    source = by_rows(machine.tile(data, src, space=HBM), machine.tile(rows), 4)
    machine.execute(DmaCopy(tile, source, oob_mode=mode))
    assert np.array_equal(machine.values(tile), np.where(good[:, None], data[rows.ravel() % 8], 0))
    table = machine.empty((8, 3), dst, space=HBM)
    machine.execute(DmaCopy(by_rows(table, machine.tile(rows), 4), machine.tile(data[:4], src), oob_mode=mode))
    expected = np.zeros((8, 3))
    expected[rows.ravel()[good]] = data[:4][good]
    assert np.array_equal(machine.values(table), expected)


def test_gather_and_scatter_at_once(machine: ReferenceMachine) -> None:
    data = integers(6, 3).astype(np.int32)
    table = machine.empty((6, 3), "int32", space=HBM)
    source = by_rows(machine.tile(data, space=HBM), machine.tile(np.array([[5], [9], [1]], np.int32)), 3)
    sink = by_rows(table, machine.tile(np.array([[0], [1], [-1]], np.int32)), 3)
    machine.execute(DmaCopy(sink, source, oob_mode=OobMode.skip))
    expected = np.zeros((6, 3), int)
    expected[0] = data[5]
    assert np.array_equal(machine.values(table), expected)


@pytest.mark.parametrize(("bad", "place"), [(50, 2), (-1, 0)])
def test_gather_out_of_bounds(machine: ReferenceMachine, bad: int, place: int) -> None:
    data = integers(50, 5, high=2**31).astype(np.int32)
    rows = np.array([[3], [4], [5]], np.int32)
    rows[place] = bad
    before = np.full((3, 5), 2**24 + 1, np.int32)  # would change on a way through float32
    dst = machine.tile(before)
    src = by_rows(machine.tile(data, space=HBM), machine.tile(rows), 3)
    with pytest.raises(OutOfBoundsFault, match=rf"index {bad} at position {place}[\s\S]*indices 0 to 49"):
        machine.execute(DmaCopy(dst, src))
    machine.execute(DmaCopy(dst, src, oob_mode=OobMode.skip))
    expected = np.array([before[0] if i == place else data[i + 3] for i in range(3)])
    assert np.array_equal(machine.values(dst), expected)


def test_gather_skips_rows_of_another_shape(machine: ReferenceMachine) -> None:
    data = integers(5, 4).astype(np.int32)
    dst = machine.tile(np.full((4, 2), -9, np.int32))
    src = by_rows(machine.tile(data, space=HBM), machine.tile(np.array([[9], [1]], np.int32)), 2)
    machine.execute(DmaCopy(dst, src, oob_mode=OobMode.skip))
    assert machine.values(dst).tolist() == [[-9, -9], [-9, -9], data[1, :2].tolist(), data[1, 2:].tolist()]


def test_scatter_out_of_bounds(machine: ReferenceMachine) -> None:
    data = integers(2, 3).astype(np.int32)
    table = machine.empty((4, 3), "int32", space=HBM)
    dst = by_rows(table, machine.tile(np.array([[4], [1]], np.uint32)), 2)
    with pytest.raises(OutOfBoundsFault, match="index 4 at position 0"):
        machine.execute(DmaCopy(dst, machine.tile(data)))
    assert not machine.values(table).any()
    machine.execute(DmaCopy(dst, machine.tile(data), oob_mode=OobMode.skip))
    assert np.array_equal(machine.values(table)[1], data[1])
    assert not machine.values(table)[[0, 2, 3]].any()


def test_copy_refuses(machine: ReferenceMachine) -> None:
    src, dst = machine.tile(random(4, 4), space=HBM), machine.empty((4, 4), "float32")
    half = machine.empty((4, 4), "bfloat16")
    rows = by_rows(src, machine.tile(np.zeros((4, 1), np.int32)), 4)
    for arguments, message in (
        ({"src": machine.tile(random(4, 4), space=PSUM)}, "must be in HBM or SBUF"),
        ({"dst": machine.empty((4, 4), "float32", space=PSUM)}, "must be in HBM or SBUF"),
        ({"dst": machine.empty((4, 5), "float32")}, "takes 20 elements where 'src'"),
        ({"priority": 1}, "priority on NeuronCore-v4"),
        ({"engine": Engine.sync}, "engine chooses the trigger of dge_mode.hwdge only"),
        ({"engine": Engine.vector, "dge_mode": DgeMode.hwdge}, "engine sync or scalar"),
        ({"dst": half, "dge_mode": DgeMode.hwdge}, "equal dtypes with dge_mode.hwdge"),
        ({"src": rows, "dge_mode": DgeMode.hwdge}, "gather and scatter with dge_mode.swdge"),
        ({"src": rows, "dge_mode": DgeMode.none}, "gather and scatter with dge_mode.swdge"),
        ({"src": shifted(src, machine.register(0), 4), "dge_mode": DgeMode.none}, "need fixed addresses"),
        ({"src": by_rows(src, machine.tile(np.zeros((4, 1), np.float32)), 4)}, "int32 or uint32"),
        ({"src": by_rows(src, machine.tile(np.zeros((5, 1), np.int32)), 4)}, r"vector offset of shape \(4, 1\)"),
        ({"src": by_rows(src, machine.register(0), 4)}, "vector_offset in SBUF"),
        ({"src": shifted(src, machine.tile(np.zeros((2, 1), np.int32)), 4)}, r"shape \(1, 1\)"),
    ):
        with pytest.raises(ConstraintFault, match=message):
            machine.execute(DmaCopy(**{"dst": dst, "src": src, **arguments}))
    machine.execute(DmaCopy(dst, src, dge_mode=DgeMode.hwdge, engine=Engine.scalar))
    machine.execute(DmaCopy(half, src, dge_mode=DgeMode.none))
    machine.execute(DmaCopy(dst, rows, dge_mode=DgeMode.swdge))


def test_rows_of_a_tile_cannot_be_indexed(machine: ReferenceMachine) -> None:
    tile = machine.tile(random(4, 4))
    index = machine.tile(np.zeros((4, 1), np.int32))
    wrong = AccessPattern(
        SBUF, tile.dtype, tile.offset, tile.pairs, partitions=4, dynamic=Dynamic(DynamicKind.VECTOR, index, 4, 4)
    )
    with pytest.raises(ConstraintFault, match="gather and scatter index HBM tensors"):
        machine.execute(DmaCopy(machine.empty((4, 4), "float32"), wrong))


def test_packed_dtypes_are_not_converted(machine: ReferenceMachine) -> None:
    packed = machine.empty((4, 4), "float8_e4m3fn_x4", space=HBM)
    with pytest.raises(ConstraintFault, match="no conversion of packed"):
        machine.execute(DmaCopy(machine.empty((4, 4), "uint32"), packed))
    machine.execute(DmaCopy(machine.empty((4, 4), "float8_e4m3fn_x4"), packed))


def test_hardware_descriptors_and_priority_by_generation() -> None:
    for target, modes in ((TRN1, False), (TRN2, True), (TRN3, True)):
        machine = ReferenceMachine(target)
        src, dst = machine.tile(random(4, 4), space=HBM), machine.empty((4, 4), "float32")
        if not modes:
            with pytest.raises(ConstraintFault, match="NeuronCore-v3 and later"):
                machine.execute(DmaCopy(dst, src, dge_mode=DgeMode.hwdge))
        else:
            machine.execute(DmaCopy(dst, src, dge_mode=DgeMode.hwdge))
    machine.execute(DmaCopy(dst, src, priority=3))
    with pytest.raises(ConstraintFault, match=r"priority 0 \(first\) to 3"):
        machine.execute(DmaCopy(dst, src, priority=4))


@pytest.mark.parametrize(
    ("target", "case", "queue", "flag"),
    [
        (TRN1, "static", Engine.sync, 0),
        (TRN2, "static", Engine.sync, WorkFlag.HARDWARE_DGE),
        (TRN2, "cast", Engine.sync, WorkFlag.CAST),
        (TRN2, "scalar trigger", Engine.scalar, WorkFlag.HARDWARE_DGE),
        (TRN2, "software", Engine.gpsimd, WorkFlag.SOFTWARE_DGE),
        (TRN2, "host", Engine.sync, 0),
        (TRN1, "offset", Engine.gpsimd, WorkFlag.SOFTWARE_DGE | WorkFlag.DYNAMIC),
        (TRN2, "offset", Engine.sync, WorkFlag.HARDWARE_DGE | WorkFlag.DYNAMIC),
        (TRN2, "gather", Engine.gpsimd, WorkFlag.SOFTWARE_DGE | WorkFlag.DYNAMIC | WorkFlag.GATHER),
    ],
)
def test_queue_and_flags(target: Target, case: str, queue: Engine, flag: int) -> None:
    machine = ReferenceMachine(target)
    src, dst = machine.tile(random(4, 4), space=HBM), machine.empty((4, 4), "float32")
    ins = {
        "static": lambda: DmaCopy(dst, src),
        "cast": lambda: DmaCopy(machine.empty((4, 4), "bfloat16"), src),
        "scalar trigger": lambda: DmaCopy(dst, src, dge_mode=DgeMode.hwdge, engine=Engine.scalar),
        "software": lambda: DmaCopy(dst, src, dge_mode=DgeMode.swdge),
        "host": lambda: DmaCopy(dst, src, dge_mode=DgeMode.none),
        "offset": lambda: DmaCopy(dst, shifted(src, machine.register(0), 4)),
        "gather": lambda: DmaCopy(dst, by_rows(src, machine.tile(np.zeros((4, 1), np.int32)), 4)),
    }[case]()
    ins.check(target)
    assert ins.select_engine(target) is Engine.dma
    assert ins.queue(target) == queue
    assert ins.work(target).flags == WorkFlag.HBM_READ | flag


def test_copy_work(machine: ReferenceMachine) -> None:
    tile = machine.empty((128, 512), "bfloat16")
    whole = machine.empty((128, 512), "bfloat16", space=HBM)
    work = DmaCopy(tile, whole).work(TRN2)
    assert (work.kind, work.nbytes, work.descriptors) == (WorkKind.DMA, 128 * 1024, 128)
    wide = machine.empty((128, 4096), "bfloat16", space=HBM)
    column = part(wide, ((4096, 128), (1, 4)))
    assert DmaCopy(machine.empty((128, 4), "bfloat16"), column).work(TRN2).descriptors == 128
    assert DmaCopy(whole, tile).work(TRN2).flags & WorkFlag.HBM_WRITE
    assert DmaCopy(tile, machine.empty((128, 512), "bfloat16")).work(TRN2).flags & WorkFlag.SRC_SBUF


def test_descriptors(machine: ReferenceMachine) -> None:
    flat = machine.empty((12,), "int32", space=HBM)
    assert descriptors(flat, flat) == 1
    assert descriptors(part(flat, ((2, 6),)), part(flat, ((1, 6),))) == 6
    # Runs of 4 and of 6 in 12 elements: breaks after 4, 6, 8, 12.
    assert descriptors(part(flat, ((5, 3), (1, 4))), part(flat, ((7, 2), (1, 6)))) == 4
    assert descriptors(part(flat, ((1, 6),)), part(flat, ((0, 6),))) == 6  # one element six times
    large = machine.empty((3, 32768), "float32", space=HBM)
    assert descriptors(large, large) == 12  # cut at 32 KiB
    rows = by_rows(large, machine.tile(np.zeros((3, 1), np.int32)), 3)
    assert descriptors(large, rows) == 12  # rows of 128 KiB


# --- dma_transpose --------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "axes"), [((24, 40), (1, 0)), ((5, 6, 7), (2, 1, 0)), ((3, 4, 5, 6), (3, 1, 2, 0))])
@pytest.mark.parametrize("space", [HBM, SBUF])
@pytest.mark.parametrize("dtype", ["int16", "int32"])
def test_transpose(
    machine: ReferenceMachine, shape: tuple[int, ...], axes: tuple[int, ...], space: Space, dtype: str
) -> None:
    data = integers(*shape).astype(dtype)
    src = machine.tile(data, space=space)
    for given_axes in (None, axes):
        dst = machine.empty(tuple(shape[axis] for axis in axes), dtype)
        machine.execute(DmaTranspose(dst, src, given_axes))
        assert np.array_equal(machine.values(dst), data.transpose(axes))


@pytest.mark.parametrize("columns", [1, 2])
def test_gather_transpose(machine: ReferenceMachine, columns: int) -> None:
    data = integers(300, 64).astype(np.int16)
    index = integers(128, columns, high=300).astype(np.uint32)
    rows = 128 * columns - 16
    dst = machine.empty((64, rows), "int16")
    machine.execute(DmaTranspose(dst, by_rows(machine.tile(data, space=HBM), machine.tile(index), rows)))
    flat = index.T.ravel()[:rows]  # column by column
    assert np.array_equal(machine.values(dst), data[flat].T)


def test_gather_transpose_of_rank_4(machine: ReferenceMachine) -> None:
    data = integers(20, 3, 1, 8).astype(np.int16)
    index = integers(16, 1, high=20).astype(np.uint32)
    dst = machine.empty((8, 3, 1, 16), "int16")
    machine.execute(DmaTranspose(dst, by_rows(machine.tile(data, space=HBM), machine.tile(index), 16)))
    assert np.array_equal(machine.values(dst), data[index.ravel()].transpose(3, 1, 2, 0))


def test_gather_transpose_skips_columns(machine: ReferenceMachine) -> None:
    data = integers(10, 8).astype(np.int16)
    index = np.arange(16, dtype=np.uint32)[:, None] % 12  # 10 and 11 are out of bounds
    dst = machine.tile(np.full((8, 16), -5, np.int16))
    src = by_rows(machine.tile(data, space=HBM), machine.tile(index), 16)
    with pytest.raises(OutOfBoundsFault, match="index 10 at position 10"):
        machine.execute(DmaTranspose(dst, src))
    machine.execute(DmaTranspose(dst, src, oob_mode=OobMode.skip))
    got = machine.values(dst)
    assert (got[:, 10:12] == -5).all()
    good = [i for i in range(16) if i not in (10, 11)]
    assert np.array_equal(got[:, good], data[index.ravel()[good]].T)


def test_transpose_at_a_scalar_offset(machine: ReferenceMachine) -> None:
    data = integers(40, 8).astype(np.int16)
    table, dst = machine.tile(data, space=HBM), machine.tile(np.full((8, 16), -5, np.int16))
    machine.execute(DmaTranspose(dst, shifted(table, machine.register(0, 25), 16), oob_mode=OobMode.skip))
    assert (machine.values(dst) == -5).all()
    machine.execute(DmaTranspose(dst, shifted(table, machine.register(0, 24), 16), oob_mode=OobMode.skip))
    assert np.array_equal(machine.values(dst), data[24:].T)


def test_transpose_refuses(machine: ReferenceMachine) -> None:
    src, dst = machine.tile(integers(16, 8).astype(np.int16), space=HBM), machine.empty((8, 16), "int16")
    flat = machine.empty((8,), "int16", space=HBM)
    moved = shifted(machine.tile(integers(40, 8).astype(np.int16), space=HBM), machine.register(0), 16)
    for arguments, message in (
        ({"src": flat}, "rank 2, 3 or 4"),
        ({"axes": (0, 1)}, r"limit: axes \(1, 0\)"),
        ({"dst": machine.empty((8, 4, 4), "int16")}, "equal shapes, rank included"),
        ({"dst": machine.empty((8, 16), "uint16")}, "no conversion in dma_transpose"),
        ({"dst": machine.empty((8, 16), "int16", space=HBM)}, "must be in SBUF"),
        ({"oob_mode": OobMode.skip}, "oob_mode.skip with an indirect src"),
        ({"dge_mode": DgeMode.swdge}, "dge_mode.unknown or hwdge"),
        ({"src": moved, "dge_mode": DgeMode.none}, "where no address depends on run-time values"),
        ({"priority": 0}, "priority on NeuronCore-v4"),
    ):
        with pytest.raises(ConstraintFault, match=message):
            machine.execute(DmaTranspose(**{"dst": dst, "src": src, **arguments}))
    machine.execute(DmaTranspose(dst, src, dge_mode=DgeMode.hwdge))
    machine.execute(DmaTranspose(dst, src, dge_mode=DgeMode.none))
    with pytest.raises(ConstraintFault, match="NeuronCore-v3 and later"):
        ReferenceMachine(TRN1).execute(DmaTranspose(dst, src, dge_mode=DgeMode.hwdge))


@pytest.mark.parametrize(
    ("shape", "dtype", "limit"),
    [
        ((16, 128), "int16", None),
        ((4, 4, 128), "int16", None),
        ((2, 1, 8, 16), "int16", None),
        ((16, 8), "int32", "two bytes"),
        ((16, 129), "int16", "at most 128"),
        ((8, 16), "int16", "first axis of 16"),
        ((3, 16, 8), "int16", "first axis of 1, 2, 4, 8 or 16"),
        ((4, 3, 8), "int16", "multiple of 16"),
    ],
)
def test_hardware_transpose_limits(shape: tuple[int, ...], dtype: str, limit: str | None) -> None:
    machine = ReferenceMachine(TRN2)
    axes = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[len(shape)]
    permuted = tuple(shape[axis] for axis in axes)
    src = machine.empty(shape, dtype, space=HBM)
    if shape[-1] > 128:
        dst: AccessPattern = machine.empty((128, 16), dtype)
        dst = AccessPattern(SBUF, dst.dtype, 0, ((1, 16),), partitions=129)
        with pytest.raises(ConstraintFault, match="129 partitions"):
            machine.execute(DmaTranspose(dst, src, dge_mode=DgeMode.hwdge))
        return
    dst = machine.empty(permuted, dtype)
    if limit is None:
        ins = DmaTranspose(dst, src, dge_mode=DgeMode.hwdge)
        machine.execute(ins)
        assert DmaTranspose(dst, src).work(TRN2).flags & WorkFlag.HARDWARE_DGE
        return
    with pytest.raises(ConstraintFault, match=limit):
        machine.execute(DmaTranspose(dst, src, dge_mode=DgeMode.hwdge))
    machine.execute(DmaTranspose(dst, src))
    assert not DmaTranspose(dst, src).work(TRN2).flags & WorkFlag.HARDWARE_DGE


@pytest.mark.parametrize(
    ("rows", "inner", "dtype", "index", "mode", "message"),
    [
        (16, (2, 2, 8), "int16", (16, 1), DgeMode.unknown, "one of the middle axes"),
        (16, (8,), "int32", (16, 1), DgeMode.unknown, "two bytes"),
        (24, (8,), "int16", (32, 1), DgeMode.unknown, "a multiple of 16 rows"),
        (16, (8,), "int16", (24, 1), DgeMode.unknown, "16 to 128 index partitions"),
        (16, (8,), "int16", (64, 2), DgeMode.unknown, "128 index partitions"),
        (32, (8,), "int16", (16, 1), DgeMode.unknown, "at least one index per row"),
        (16, (8,), "int16", (16, 1), DgeMode.hwdge, "dge_mode.unknown or swdge"),
    ],
)
def test_gather_transpose_refuses(
    machine: ReferenceMachine,
    rows: int,
    inner: tuple[int, ...],
    dtype: str,
    index: tuple[int, int],
    mode: DgeMode,
    message: str,
) -> None:
    shape = (rows, *inner)
    axes = {2: (1, 0), 4: (3, 1, 2, 0)}[len(shape)]
    dst = machine.empty(tuple(shape[axis] for axis in axes), dtype)
    src = by_rows(machine.empty(shape, dtype, space=HBM), machine.tile(np.zeros(index, np.uint32)), rows)
    with pytest.raises(ConstraintFault, match=message):
        machine.execute(DmaTranspose(dst, src, dge_mode=mode))


def test_gather_transpose_needs_uint32_and_generation_3(machine: ReferenceMachine) -> None:
    table, dst = machine.empty((16, 8), "int16", space=HBM), machine.empty((8, 16), "int16")
    with pytest.raises(ConstraintFault, match="uint32 indices"):
        machine.execute(DmaTranspose(dst, by_rows(table, machine.tile(np.zeros((16, 1), np.int32)), 16)))
    right = by_rows(table, machine.tile(np.zeros((16, 1), np.uint32)), 16)
    with pytest.raises(ConstraintFault, match="indirect dma_transpose on NeuronCore-v3"):
        ReferenceMachine(TRN1).execute(DmaTranspose(dst, right))
    machine.execute(DmaTranspose(dst, right))


def test_transpose_work(machine: ReferenceMachine) -> None:
    src, dst = machine.empty((512, 128), "bfloat16", space=HBM), machine.empty((128, 512), "bfloat16")
    ins = DmaTranspose(dst, src)
    work = ins.work(TRN2)
    assert (work.kind, work.nbytes, work.descriptors) == (WorkKind.DMA_TRANSPOSE, 128 * 1024, 512)
    assert ins.queue(TRN2) == Engine.sync


# --- dma_compute ----------------------------------------------------------------------------------


def test_compute_adds_in_float32(machine: ReferenceMachine) -> None:
    parts = [random(8, 6, seed=i) for i in range(16)]
    srcs = tuple(machine.tile(one, "bfloat16", space=HBM if i % 2 else SBUF) for i, one in enumerate(parts))
    dst = machine.empty((8, 6), "bfloat16")
    machine.execute(DmaCompute(dst, srcs, ADD, (1.0,) * 16))
    expected = machine.values(srcs[0]).copy()
    for src in srcs[1:]:
        expected = (expected + machine.values(src)).astype(np.float32)
    rounded = machine.tile(expected, "bfloat16")
    assert np.array_equal(machine.values(dst), machine.values(rounded))


def test_compute_mixes_dtypes_and_shapes(machine: ReferenceMachine) -> None:
    whole, fractions = integers(4, 6).astype(np.int32), random(24)
    dst = machine.empty((2, 12), "float32", space=HBM)
    machine.execute(DmaCompute(dst, (machine.tile(whole), machine.tile(fractions, space=HBM)), ADD))
    assert np.array_equal(machine.values(dst).ravel(), whole.ravel().astype(np.float32) + fractions)


def in_place(machine: ReferenceMachine, kind: str, rows: np.ndarray) -> tuple[Any, ...]:
    """(table, tile, dst, srcs) of an update of 3-column rows."""
    table = machine.tile(integers(10, 3).astype(np.float32), space=HBM)
    tile = machine.tile(integers(len(rows), 3, seed=1).astype(np.float32))
    indexed = by_rows(table, machine.tile(rows), len(rows))
    return (table, tile, indexed, (indexed, tile)) if kind == "scatter" else (table, tile, tile, (indexed, tile))


@pytest.mark.parametrize("mode", [OobMode.error, OobMode.skip])
def test_scatter_add(machine: ReferenceMachine, mode: OobMode) -> None:
    rows = np.array([[7], [2], [0]] if mode is OobMode.error else [[7], [12], [0]], np.int32)
    table, tile, dst, srcs = in_place(machine, "scatter", rows)
    expected = machine.values(table).copy()
    for row, addend in zip(rows.ravel(), machine.values(tile), strict=True):
        if row < 10:
            expected[row] += addend
    machine.execute(DmaCompute(dst, srcs, ADD, oob_mode=mode))
    assert np.array_equal(machine.values(table), expected)


@pytest.mark.parametrize("mode", [OobMode.error, OobMode.skip])
def test_gather_add(machine: ReferenceMachine, mode: OobMode) -> None:
    rows = np.array([[7], [2], [7]] if mode is OobMode.error else [[7], [-1], [7]], np.int32)
    table, tile, dst, srcs = in_place(machine, "gather", rows)
    expected = machine.values(tile).copy()
    for place, row in enumerate(rows.ravel()):
        if row >= 0:
            expected[place] += machine.values(table)[row]
    machine.execute(DmaCompute(dst, srcs, ADD, oob_mode=mode))
    assert np.array_equal(machine.values(tile), expected)


def test_compute_out_of_bounds_and_repeated_rows(machine: ReferenceMachine) -> None:
    _, _, dst, srcs = in_place(machine, "scatter", np.array([[1], [10]], np.int32))
    with pytest.raises(OutOfBoundsFault, match="index 10 at position 1"):
        machine.execute(DmaCompute(dst, srcs, ADD))
    table, _, dst, srcs = in_place(machine, "scatter", np.array([[4], [1], [4]], np.int32))
    before = machine.values(table).copy()
    with pytest.raises(RaceFault, match="row 4 is updated by more than one index"):
        machine.execute(DmaCompute(dst, srcs, ADD))
    assert np.array_equal(machine.values(table), before)


def test_compute_refuses(machine: ReferenceMachine) -> None:
    a, b = machine.tile(random(4, 3)), machine.tile(random(4, 3), space=HBM)
    dst = machine.empty((4, 3), "float32")
    index = machine.tile(np.arange(4, dtype=np.int32)[:, None])
    rows = by_rows(b, index, 4)
    other_rows = by_rows(b, machine.tile(np.zeros((4, 1), np.int32)), 4)
    far = machine.empty((4, 3), "float32", space=HBM)
    for arguments, message in (
        ((dst, (a,) * 17, ADD), "at most 16 sources"),
        ((dst, (), ADD), "takes a sequence of tensors"),
        ((dst, (a, 1.0), ADD), r"operand 'srcs\[1\]': takes tensors, not float"),
        ((dst, (a, b), alu_op("multiply")), "limit: reduce_op add"),
        ((dst, (a, b), ADD, (1.0, 2.0)), "2 times 1.0"),
        ((dst, (a, b), ADD, None, False), "unique_indices=True"),
        ((dst, (a, machine.tile(random(4, 4))), ADD), r"operand 'srcs\[1\]': has 16 elements where 'dst' has 12"),
        ((dst, (a, machine.tile(random(4, 3), space=PSUM)), ADD), r"operand 'srcs\[1\]': must be in HBM or SBUF"),
        ((dst, (a, shifted(b, machine.register(0), 4)), ADD), "has a scalar run-time address"),
        ((dst, (a, b), ADD, None, True, OobMode.skip), "oob_mode.skip with a vector offset"),
        ((rows, (rows, a, a), ADD), "exactly 2 sources"),
        ((rows, (other_rows, a), ADD), "one of the two sources is dst itself"),
        ((dst, (a, rows), ADD), "one of the two sources is dst itself"),
        ((rows, (rows, far), ADD), "data in SBUF with a fixed address"),
        ((rows, (rows, rows), ADD), "data in SBUF with a fixed address"),
        ((far, (far, rows), ADD), "limit: dst in SBUF"),
    ):
        with pytest.raises(ConstraintFault, match=message):
            machine.execute(DmaCompute(*arguments))
    machine.execute(DmaCompute(dst, (a, b), ADD))


def test_compute_work(machine: ReferenceMachine) -> None:
    a, b = machine.tile(random(4, 3)), machine.tile(random(4, 3), space=HBM)
    ins = DmaCompute(machine.empty((4, 3), "float32"), (a, b, b), ADD)
    work = ins.work(TRN2)
    assert (work.kind, work.inputs, work.flops, work.descriptors) == (WorkKind.DMA_COMPUTE, 3, 24, 12)
    assert work.flags == WorkFlag.HBM_READ | WorkFlag.SRC_SBUF
    assert ins.queue(TRN2) == Engine.sync
    _, _, dst, srcs = in_place(machine, "scatter", np.array([[1]], np.int32))
    update = DmaCompute(dst, srcs, ADD)
    assert update.queue(TRN2) == Engine.gpsimd
    assert update.work(TRN2).flags & WorkFlag.SCATTER


# --- the stream -----------------------------------------------------------------------------------


def test_several_sources_in_the_stream(machine: ReferenceMachine) -> None:
    """A tuple of operands takes part in key, words, masks and text."""
    _, _, dst, srcs = in_place(machine, "scatter", np.array([[1], [2]], np.int32))
    ins = DmaCompute(dst, srcs, ADD)
    assert ins.key() == DmaCompute(dst, srcs, ADD).key()
    assert ins.key() != DmaCompute(dst, srcs[::-1], ADD).key()
    assert [name for name, _ in ins.tensors()] == ["dst", "srcs[0]", "srcs[1]"]
    assert [name for name, _ in ins.tensors(writes=False)] == ["srcs[0]", "srcs[1]"]
    program = Program(TRN2)
    template = program.add_template(ins, Engine.dma, ins.queue(TRN2), ins.work(TRN2))
    program.append(template, program.source_id("kernel.py", 1, "kernel"), ins)
    stored = program.templates[template]
    assert stored.fields == ("dst", "srcs[0]", "srcs[1]", "dst@index", "srcs[0]@index")
    assert (stored.operands, stored.reads, stored.writes) == (5, 0b11110, 0b00001)
    operands = dict(program.operands(0))
    assert operands["srcs[1]"].words == srcs[1].words
    assert operands["dst@index"].words == dst.dynamic.index.words
    assert "srcs[1]=sbuf[0:2]" in next(program.disassemble())
