"""MX: quantization and products against a plain definition with ml_dtypes, scale by scale."""

import ml_dtypes
import numpy as np
import pytest

from isa import dtypes
from isa.engine import Engine
from isa.faults import ConstraintFault
from isa.mx import MatmulMx, QuantizeMx
from isa.operands import Space
from isa.target import TRN2, TRN3
from isa.work import WorkKind
from perf_model.cost import cost
from perf_model.rates import load_rates
from tests.isa.reference_machine import ReferenceMachine

ELEMENTS = {
    "float8_e4m3fn_x4": (ml_dtypes.float8_e4m3fn, 8),
    "float8_e5m2_x4": (ml_dtypes.float8_e5m2, 15),
    "float4_e2m1fn_x4": (ml_dtypes.float4_e2m1fn, 2),
}
QUANTIZED = ["float8_e4m3fn_x4", "float8_e5m2_x4"]


@pytest.fixture
def machine():
    return ReferenceMachine(TRN3)


def scale_row(partition):
    """Where the scale of a data partition lies, in a tile of scales as tall as the data."""
    return partition // 32 * 32 + partition % 32 // 8


def numbers_of(machine, operand):
    """(partitions, columns, 4) float32 of a packed tile."""
    kind, _ = ELEMENTS[operand.dtype]
    raw = machine.raw(operand)
    if operand.dtype == "float4_e2m1fn_x4":
        nibbles = np.stack([(raw >> shift & 0xF).astype(np.uint8) for shift in (0, 4, 8, 12)], axis=-1)
        return nibbles.view(kind).astype(np.float32)
    return raw.view(np.uint8).view(kind).astype(np.float32).reshape(*raw.shape, 4)


def random_packed(machine, rng, shape, dtype, start=0):
    operand = machine.empty(shape, dtype, start=start)
    kind, _ = ELEMENTS[dtype]
    finite = rng.standard_normal((*shape, 4)).astype(kind)
    if dtype == "float4_e2m1fn_x4":
        codes = finite.view(np.uint8).astype(np.uint16)
        bits = sum(codes[..., i] << np.uint16(4 * i) for i in range(4)).astype(np.uint16)
    else:
        bits = finite.view(np.uint8).reshape(shape[0], -1).view(np.uint32)
    machine.store_raw(operand, bits)
    return operand


def random_scales(machine, rng, shape, dtype="uint8", start=0):
    return machine.tile(rng.integers(125, 130, shape).astype(np.uint8), dtype, start=start)


def expected_product(machine, stationary, moving, stationary_scale, moving_scale):
    sides = []
    for data, scale in ((stationary, stationary_scale), (moving, moving_scale)):
        numbers, codes = numbers_of(machine, data).astype(np.float64), machine.raw(scale).view(np.uint8)
        for p in range(data.partitions):
            numbers[p] *= (2.0 ** (codes[scale_row(p)].astype(np.float64) - 127))[:, None]
        sides.append(numbers)
    return np.einsum("kiq,kjq->ij", *sides)


# --- nc_matmul_mx -----------------------------------------------------------------------------------


@pytest.mark.parametrize("left", ELEMENTS)
@pytest.mark.parametrize("right", ELEMENTS)
def test_product_of_every_pair_of_formats(machine, left, right):
    rng = np.random.default_rng(1)
    stationary, moving = random_packed(machine, rng, (128, 6), left), random_packed(machine, rng, (128, 10), right)
    scales = random_scales(machine, rng, (128, 6)), random_scales(machine, rng, (128, 10), "float8_e8m0fnu")
    dst = machine.empty((6, 10), "float32", space=Space.PSUM)
    machine.execute(MatmulMx(dst, stationary, moving, *scales))
    want = expected_product(machine, stationary, moving, *scales)
    np.testing.assert_allclose(machine.values(dst), want, rtol=1e-5, atol=1e-3)


def test_hand_computed(machine):
    """One group, all ones but one number: 31 * 1 + 3 = 34, times 2^1 * 2^-2."""
    ones = np.full((32, 2, 4), 1.0, ml_dtypes.float8_e4m3fn)
    stationary = machine.empty((32, 2), "float8_e4m3fn_x4")
    machine.store_raw(stationary, ones.view(np.uint8).reshape(32, 8).view(np.uint32))
    ones[0, 0, 2] = 3.0
    moving = machine.empty((32, 2), "float8_e4m3fn_x4")
    machine.store_raw(moving, ones.view(np.uint8).reshape(32, 8).view(np.uint32))
    left = machine.tile(np.array([[128, 127]] * 4, np.uint8))
    right = machine.tile(np.array([[125, 127], [0, 0], [0, 0], [0, 0]], np.uint8))
    dst = machine.empty((2, 2), "float32", space=Space.PSUM)
    machine.execute(MatmulMx(dst, stationary, moving, left, right))
    rest = 96 * 2.0**-127  # the other three groups of moving are scaled by the smallest scale
    np.testing.assert_array_equal(machine.values(dst)[0], [17.0, np.float32(64 + 6 * rest)])
    assert machine.values(dst)[1, 0] == 8.5


def test_two_sets_of_scales_share_a_tile(machine):
    rng = np.random.default_rng(2)
    stationary = random_packed(machine, rng, (64, 4), "float8_e5m2_x4")
    moving = random_packed(machine, rng, (64, 8), "float8_e5m2_x4")
    codes = rng.integers(125, 130, (64, 8)).astype(np.uint8)
    lower = machine.tile(codes[:, :4])
    upper = machine.tile(codes[8:], start=8)
    dst = machine.empty((4, 8), "float32", space=Space.PSUM)
    machine.execute(MatmulMx(dst, stationary, moving, lower, upper))
    want = expected_product(machine, stationary, moving, lower, upper)
    np.testing.assert_allclose(machine.values(dst), want, rtol=1e-5, atol=1e-3)


def test_scale_255_is_nan(machine):
    rng = np.random.default_rng(3)
    stationary = random_packed(machine, rng, (32, 2), "float8_e4m3fn_x4")
    moving = random_packed(machine, rng, (32, 3), "float8_e4m3fn_x4")
    right = np.full((4, 3), 127, np.uint8)
    right[2, 1] = 255
    dst = machine.empty((2, 3), "float32", space=Space.PSUM)
    machine.execute(
        MatmulMx(dst, stationary, moving, machine.tile(np.full((4, 2), 127, np.uint8)), machine.tile(right))
    )
    assert np.isnan(machine.values(dst)).tolist() == [[False, True, False]] * 2


def test_accumulates_as_nc_matmul_does(machine):
    rng = np.random.default_rng(4)
    operands = (
        random_packed(machine, rng, (32, 2), "float8_e4m3fn_x4"),
        random_packed(machine, rng, (32, 4), "float8_e4m3fn_x4"),
        random_scales(machine, rng, (4, 2)),
        random_scales(machine, rng, (4, 4)),
    )
    want = expected_product(machine, *operands)
    dst = machine.empty((2, 4), "float32", space=Space.PSUM)
    machine.execute(MatmulMx(dst, *operands))
    machine.execute(MatmulMx(dst, *operands))
    np.testing.assert_allclose(machine.values(dst), 2 * want, rtol=1e-5)
    machine.execute(MatmulMx(dst, *operands, accumulate=False))
    np.testing.assert_allclose(machine.values(dst), want, rtol=1e-5)


def test_bfloat16_result_is_rounded_once(machine):
    rng = np.random.default_rng(5)
    operands = (
        random_packed(machine, rng, (64, 2), "float8_e5m2_x4"),
        random_packed(machine, rng, (64, 4), "float8_e5m2_x4"),
        random_scales(machine, rng, (64, 2)),
        random_scales(machine, rng, (64, 4)),
    )
    wide = machine.empty((2, 4), "float32", space=Space.PSUM)
    narrow = machine.empty((2, 4), "bfloat16", space=Space.PSUM)
    machine.execute(MatmulMx(wide, *operands))
    machine.execute(MatmulMx(narrow, *operands))
    np.testing.assert_array_equal(machine.values(narrow), dtypes.round_to(machine.values(wide), dtypes.bfloat16))


def test_row_tiles(machine):
    rng = np.random.default_rng(6)
    operands = (
        random_packed(machine, rng, (64, 2), "float8_e5m2_x4", start=64),
        random_packed(machine, rng, (64, 4), "float8_e5m2_x4", start=64),
        random_scales(machine, rng, (64, 2), start=64),
        random_scales(machine, rng, (64, 4), start=64),
    )
    dst = machine.empty((2, 4), "float32", space=Space.PSUM)
    ins = MatmulMx(dst, *operands, tile_position=(64, 0), tile_size=(64, 128))
    machine.execute(ins)
    assert ins.work(TRN3).row_tile == (64, 128, 64, 0)
    np.testing.assert_allclose(machine.values(dst), expected_product(machine, *operands), rtol=1e-5)


def matmul_operands(machine, **changed):
    made = {
        "dst": machine.empty((4, 8), "float32", space=Space.PSUM),
        "stationary": machine.empty((64, 4), "float8_e4m3fn_x4"),
        "moving": machine.empty((64, 8), "float8_e4m3fn_x4"),
        "stationary_scale": machine.empty((64, 4), "uint8"),
        "moving_scale": machine.empty((64, 8), "uint8"),
    }
    return MatmulMx(**(made | changed))


def test_legal_twin(machine):
    matmul_operands(machine).check(TRN3)


def test_does_not_exist_before_v4(machine):
    with pytest.raises(ConstraintFault, match="does not exist on this generation"):
        matmul_operands(machine).check(TRN2)
    tiles = machine.empty((32, 1), "float8_e5m2_x4"), machine.empty((32, 4), "bfloat16"), machine.empty((4, 1), "uint8")
    QuantizeMx(*tiles).check(TRN3)
    with pytest.raises(ConstraintFault, match="does not exist on this generation"):
        QuantizeMx(*tiles).check(TRN2)


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "message"),
    [
        ("stationary", (64, 4), "float8_e4m3fn", "dtype float8_e4m3fn is not accepted"),
        ("moving", (64, 8), "uint32", "dtype uint32 is not accepted"),
        ("stationary", (48, 4), "float8_e4m3fn_x4", "has 48 partitions"),
        ("moving", (32, 8), "float8_e4m3fn_x4", "has 32 partitions where 'stationary'"),
        ("stationary", (64, 5), "float8_e4m3fn_x4", "has 5 columns"),
        ("stationary", (64, 130), "float8_e4m3fn_x4", "has 130 columns"),
        ("moving", (64, 4097), "float8_e4m3fn_x4", "has 4097 columns"),
        ("moving", (64, 9), "float8_e4m3fn_x4", "is not the"),
        ("stationary_scale", (64, 3), "uint8", "has 3 elements per partition"),
        ("moving_scale", (64, 8), "int8", "dtype int8 is not accepted"),
        ("moving_scale", (8, 8), "uint8", "has 8 partitions"),
    ],
)
def test_refused_operands(machine, name, shape, dtype, message):
    with pytest.raises(ConstraintFault, match=message):
        matmul_operands(machine, **{name: machine.empty(shape, dtype)}).check(TRN3)


def test_dst_is_in_psum(machine):
    with pytest.raises(ConstraintFault, match="must be in PSUM"):
        matmul_operands(machine, dst=machine.empty((4, 8), "float32")).check(TRN3)


@pytest.mark.parametrize(("start", "legal"), [(0, True), (4, True), (8, True), (12, True), (2, False), (16, False)])
def test_slots_of_scales(machine, start, legal):
    ins = matmul_operands(machine, moving_scale=machine.empty((64 - start, 8), "uint8", start=start))
    if legal:
        ins.check(TRN3)
        return
    with pytest.raises(ConstraintFault, match=f"starts at partition {start}"):
        ins.check(TRN3)


def test_scales_lie_in_the_quadrant_of_their_data(machine):
    with pytest.raises(ConstraintFault, match="quadrant of their data"):
        matmul_operands(machine, moving_scale=machine.empty((64, 8), "uint8", start=32)).check(TRN3)


@pytest.mark.parametrize(
    ("tile_size", "tile_position", "message"),
    [
        ((64, 128), None, "tile_position is missing"),
        (None, (0, 0), "tile_size is missing"),
        ((64, 64), (0, 0), "row tiles only"),
        ((64, 128), (0, 64), "row tiles only"),
        ((64, 128), (32, 0), "row tiles of 64 at 32"),
        ((32, 128), (0, 0), "has 64 contraction rows"),
        ((64,), (0,), "pairs"),
    ],
)
def test_refused_tiles(machine, tile_size, tile_position, message):
    with pytest.raises(ConstraintFault) as caught:
        matmul_operands(machine, tile_size=tile_size, tile_position=tile_position).check(TRN3)
    assert message in str(caught.value)


def test_a_product_takes_as_long_as_one_of_bfloat16_and_does_four_times_as_much(machine):
    work = matmul_operands(machine).work(TRN3)
    assert work.kind is WorkKind.MATMUL
    assert work.flops == 2 * 4 * 64 * 4 * 8
    rates = load_rates(TRN3)
    full = MatmulMx(
        machine.empty((128, 512), "float32", space=Space.PSUM),
        machine.empty((128, 128), "float8_e4m3fn_x4"),
        machine.empty((128, 512), "float8_e4m3fn_x4"),
        machine.empty((128, 128), "uint8"),
        machine.empty((128, 512), "uint8"),
    ).work(TRN3)
    spent = cost(full, Engine.tensor, rates)
    assert spent.cycles == 512
    tflops = full.flops / (spent.cycles / rates.value("tensor.clock_ghz")) / 1e3
    assert tflops == pytest.approx(315, rel=0.01)  # documented peak of one core


# --- quantize_mx ------------------------------------------------------------------------------------


def quantized(values, dtype):
    """(numbers as stored, scale codes): group by group."""
    kind, largest = ELEMENTS[dtype]
    partitions, free = values.shape
    numbers, codes = np.zeros((partitions, free), kind), np.zeros((partitions // 8, free // 4), np.uint8)
    for i in range(0, partitions, 8):
        for j in range(0, free, 4):
            group = values[i : i + 8, j : j + 4].astype(np.float64)
            peak = np.abs(group).max()
            exponent = -127 if peak == 0 else int(np.floor(np.log2(peak))) - (largest - 1)
            exponent = min(max(exponent, -127), 127)
            numbers[i : i + 8, j : j + 4] = (group / 2.0**exponent).astype(np.float32).astype(kind)
            codes[i // 8, j // 4] = exponent + 127
    return numbers, codes


@pytest.mark.parametrize("dtype", QUANTIZED)
@pytest.mark.parametrize("source", ["bfloat16", "float16"])
@pytest.mark.parametrize("partitions", [32, 64, 96, 128])
def test_quantizes_group_by_group(machine, dtype, source, partitions):
    rng = np.random.default_rng(partitions)
    values = rng.standard_normal((partitions, 24)) * 10.0 ** rng.integers(-3, 4, (partitions, 24))
    values[:8, :4] = 0
    src = machine.tile(values.astype(np.float32), source)
    dst = machine.empty((partitions, 6), dtype)
    scale = machine.empty((partitions, 6), "uint8")
    machine.execute(QuantizeMx(dst, src, scale))
    numbers, codes = quantized(machine.load(src), dtype)
    np.testing.assert_array_equal(machine.raw(dst).view(np.uint8), numbers.view(np.uint8))
    found = machine.raw(scale)[[scale_row(p) for p in range(0, partitions, 8)]]
    np.testing.assert_array_equal(found, codes)
    assert codes[0, 0] == 0


def test_scales_go_nowhere_else(machine):
    scale = machine.tile(np.full((128, 2), 77, np.uint8))
    src = machine.tile(np.ones((64, 8), np.float32), "bfloat16")
    lower = machine.resolve(scale)
    lower.partitions = 64
    machine.execute(QuantizeMx(machine.empty((64, 2), "float8_e4m3fn_x4"), src, lower))
    written = machine.raw(scale)[:, 0] != 77
    assert np.flatnonzero(written).tolist() == [0, 1, 2, 3, 32, 33, 34, 35]
    assert machine.raw(scale)[0, 0] == 127 - 7  # floor(log2 1) - (8 - 1)


@pytest.mark.parametrize("dtype", QUANTIZED)
def test_rounding_never_saturates(machine, dtype):
    """The largest number below a power of two rounds up to it, and still is finite."""
    src = machine.tile(np.full((32, 4), 1.9921875, np.float32), "bfloat16")
    dst, scale = machine.empty((32, 1), dtype), machine.empty((4, 1), "float8_e8m0fnu")
    machine.execute(QuantizeMx(dst, src, scale))
    _, largest = ELEMENTS[dtype]
    assert numbers_of(machine, dst).max() == 2.0**largest
    assert machine.values(scale)[0, 0] == 2.0 ** (1 - largest)


def test_infinity_and_nan_stay_what_they_are(machine):
    values = np.ones((32, 8), np.float32)
    values[3, 1], values[9, 6] = np.inf, np.nan
    src = machine.tile(values, "bfloat16")
    dst, scale = machine.empty((32, 2), "float8_e5m2_x4"), machine.empty((4, 2), "uint8")
    machine.execute(QuantizeMx(dst, src, scale))
    numbers = numbers_of(machine, dst)
    assert np.isinf(numbers[3, 0, 1])
    assert np.isnan(numbers[9, 1, 2])
    assert np.isfinite(numbers).sum() == numbers.size - 2
    assert machine.raw(scale).tolist() == [[241, 113], [113, 241], [113, 113], [113, 113]]  # 128 - 14 + 127


@pytest.mark.parametrize(
    ("dst", "src", "scale", "message"),
    [
        (((32, 2), "float4_e2m1fn_x4"), ((32, 8), "bfloat16"), ((4, 2), "uint8"), "dtype float4_e2m1fn_x4"),
        (((32, 2), "float8_e5m2_x4"), ((32, 8), "float32"), ((4, 2), "uint8"), "dtype float32"),
        (((16, 2), "float8_e5m2_x4"), ((16, 8), "bfloat16"), ((4, 2), "uint8"), "has 16 partitions"),
        (((32, 2), "float8_e5m2_x4"), ((32, 6), "bfloat16"), ((4, 2), "uint8"), "has 6 elements per partition"),
        (((32, 8), "float8_e5m2_x4"), ((32, 8), "bfloat16"), ((4, 2), "uint8"), "is not the"),
        (((32, 2), "float8_e5m2_x4"), ((32, 8), "bfloat16"), ((2, 2), "uint8"), "has 2 partitions"),
        (((32, 2), "float8_e5m2_x4"), ((32, 8), "bfloat16"), ((4, 8), "uint8"), "has 8 elements per partition"),
    ],
)
def test_refused_quantization(machine, dst, src, scale, message):
    ins = QuantizeMx(*(machine.empty(*one) for one in (dst, src, scale)))
    with pytest.raises(ConstraintFault) as caught:
        ins.check(TRN3)
    assert message in str(caught.value)


def test_four_elements_a_cycle(machine):
    ins = QuantizeMx(
        machine.empty((128, 512), "float8_e5m2_x4"),
        machine.empty((128, 2048), "bfloat16"),
        machine.empty((128, 512), "uint8"),
    )
    assert cost(ins.work(TRN3), Engine.vector, load_rates(TRN3)).cycles == 512
