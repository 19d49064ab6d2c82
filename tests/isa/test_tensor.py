"""Tensor Engine: products and transposes against numpy; every limit with a case that breaks it and a clean twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.engine import Engine
from isa.enums import MatmulPerfMode
from isa.faults import ConstraintFault, UnverifiedFault
from isa.operands import AccessPattern, Space
from isa.target import TRN1, TRN2, TRN3, Target
from isa.tensor import Matmul, TensorTranspose
from isa.work import WorkFlag, WorkKind
from tests.isa.reference_machine import ReferenceMachine

DOUBLE_ROW = MatmulPerfMode.double_row


@pytest.fixture
def machine() -> ReferenceMachine:
    return ReferenceMachine(TRN2)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def matmul(
    target: Target = TRN2,
    *,
    k: int = 4,
    m: int = 3,
    n: int = 5,
    dtypes: tuple[str, str] = ("bfloat16", "bfloat16"),
    dst: str = "float32",
    shape: tuple[int, ...] | None = None,
    **fields: Any,
) -> Matmul:
    """A matmul of zeros with dense operands of the right shapes."""
    machine = ReferenceMachine(target)
    return Matmul(
        machine.empty(shape or (m, n), dst, space=Space.PSUM),
        machine.empty((k, m), dtypes[0]),
        machine.empty((k, n), dtypes[1]),
        **fields,
    )


def accepts(ins: Matmul | TensorTranspose, target: Target) -> None:
    ins.check(target)
    ins.constrain_address(target)


def refuses(ins: Matmul | TensorTranspose, target: Target, operand: str | None, words: str) -> None:
    with pytest.raises(ConstraintFault, match=words) as caught:
        accepts(ins, target)
    assert caught.value.operand == operand
    assert caught.value.limit
    assert target.core in str(caught.value)


# --- products -------------------------------------------------------------------------------------


def test_product_by_hand(machine: ReferenceMachine) -> None:
    stationary = machine.tile([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "float32")
    moving = machine.tile([[1.0, 0.0], [10.0, 1.0]], "float32")
    dst = machine.empty((3, 2), "float32", space=Space.PSUM)
    machine.execute(Matmul(dst, stationary, moving))
    assert machine.values(dst).tolist() == [[41, 4], [52, 5], [63, 6]]


@settings(max_examples=25, deadline=None)
@given(
    k=st.integers(1, 128), m=st.integers(1, 128), n=st.integers(1, 64),
    dtype=st.sampled_from(["float8_e4m3", "float8_e5m2", "bfloat16", "float16", "float32", "tfloat32"]),
)  # fmt: skip
def test_product_of_any_legal_shape(k: int, m: int, n: int, dtype: str) -> None:
    machine = ReferenceMachine(TRN2)
    left, right = machine.tile(random(k, m, seed=k), dtype), machine.tile(random(k, n, seed=n), dtype)
    dst = machine.empty((m, n), "float32", space=Space.PSUM)
    machine.execute(Matmul(dst, left, right))
    expected = machine.values(left).astype(np.float64).T @ machine.values(right).astype(np.float64)
    np.testing.assert_allclose(machine.values(dst), expected, rtol=1e-5, atol=1e-4)


def test_free_dimensions_are_flattened(machine: ReferenceMachine) -> None:
    left, right = random(8, 2, 3), random(8, 2, 2, 2, seed=1)
    dst = machine.empty((6, 4, 2), "float32", space=Space.PSUM)
    machine.execute(Matmul(dst, machine.tile(left, "float32"), machine.tile(right, "float32")))
    expected = left.reshape(8, 6).T @ right.reshape(8, 8)
    np.testing.assert_allclose(machine.values(dst).reshape(6, 8), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("accumulate", "sums"), [(None, [1, 2, 3]), (False, [1, 1, 1]), ("first", [1, 2, 3])])
def test_accumulation(machine: ReferenceMachine, accumulate: bool | str | None, sums: list[int]) -> None:
    one = machine.tile([[1.0]], "float32")
    dst = machine.empty((1, 1), "float32", space=Space.PSUM)
    for step, expected in enumerate(sums):
        machine.execute(Matmul(dst, one, one, accumulate=step > 0 if accumulate == "first" else accumulate))
        assert machine.values(dst) == expected


def test_bfloat16_psum_rounds_at_every_write_on_v4() -> None:
    machine = ReferenceMachine(TRN3)
    dst = machine.empty((1, 1), "bfloat16", space=Space.PSUM)
    one, small = machine.tile([[1.0]], "float32"), machine.tile([[2.0**-9]], "float32")
    machine.execute(Matmul(dst, one, one))
    for _ in range(4):
        machine.execute(Matmul(dst, one, small))
    assert machine.values(dst) == 1.0  # 1 + 2^-9 rounds back to 1 each time; in float32 it would be 1 + 2^-7


def test_double_row_contracts_over_the_pair(machine: ReferenceMachine) -> None:
    left, right = random(16, 2, 3), random(16, 2, 5, seed=1)
    stationary, moving = machine.tile(left, "float8_e4m3"), machine.tile(right, "float8_e5m2")
    dst = machine.empty((3, 5), "float32", space=Space.PSUM)
    machine.execute(Matmul(dst, stationary, moving, perf_mode=DOUBLE_ROW))
    expected = np.einsum("kim,kin->mn", machine.values(stationary), machine.values(moving))
    np.testing.assert_allclose(machine.values(dst), expected, rtol=1e-5, atol=1e-5)


def test_tiles_and_hints_change_no_values(machine: ReferenceMachine) -> None:
    left, right = machine.tile(random(32, 32), "float32"), machine.tile(random(32, 8, seed=1), "float32")
    results = []
    for fields in ({}, {"tile_size": (32, 32), "tile_position": (96, 32)}, {"is_moving_onezero": True}):
        dst = machine.empty((32, 8), "float32", space=Space.PSUM)
        machine.execute(Matmul(dst, left, right, **fields))
        results.append(machine.values(dst))
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


# --- transpose mode -------------------------------------------------------------------------------

SPECIAL = np.array([[np.nan, np.inf, -0.0], [1.0, -np.inf, 2.0]], np.float32)


def identity(machine: ReferenceMachine, size: int, dtype: str) -> AccessPattern:
    return machine.tile(np.eye(size, dtype=np.float32), dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_transpose_mode_moves_bits(machine: ReferenceMachine, dtype: str) -> None:
    data = machine.tile(SPECIAL, dtype)
    dst = machine.empty((3, 2), dtype, space=Space.PSUM)
    machine.execute(Matmul(dst, data, identity(machine, 2, dtype), is_transpose=True, is_moving_onezero=True))
    assert np.array_equal(machine.raw(dst).view(np.uint8), machine.raw(data).T.copy().view(np.uint8))


def test_transpose_mode_keeps_nan_payloads(machine: ReferenceMachine) -> None:
    data = machine.empty((2, 2), "float32")
    bits = np.array([[0x7FC01234, 0x7F800001], [0xFFFFFFFF, 0x80000000]], np.uint32)
    machine.store_raw(data, bits.view(np.float32))
    dst = machine.empty((2, 2), "float32", space=Space.PSUM)
    machine.execute(TensorTranspose(dst, data))
    assert np.array_equal(machine.raw(dst).view(np.uint32), bits.T)


def test_transpose_mode_overwrites(machine: ReferenceMachine) -> None:
    dst = machine.empty((2, 2), "float32", space=Space.PSUM)
    data = machine.tile([[1.0, 2.0], [3.0, 4.0]], "float32")
    for _ in range(2):
        machine.execute(Matmul(dst, data, identity(machine, 2, "float32"), is_transpose=True))
    assert machine.values(dst).tolist() == [[1, 3], [2, 4]]


@pytest.mark.parametrize("landing", ["uint16", "bfloat16", "float16"])
def test_fp8_lands_in_two_bytes_with_a_zero_upper_byte(machine: ReferenceMachine, landing: str) -> None:
    data = machine.tile([[1.0, -2.0], [0.5, np.inf]], "float8_e5m2")
    dst = machine.empty((2, 2), landing, space=Space.PSUM)
    machine.execute(TensorTranspose(dst, data))
    assert np.array_equal(machine.raw(dst).view(np.uint16), machine.raw(data).T.astype(np.uint16))


def test_fp8_may_stay_fp8(machine: ReferenceMachine) -> None:
    data = machine.tile([[1.0, -2.0], [0.5, 3.0]], "float8_e4m3")
    dst = machine.empty((2, 2), "float8_e4m3", space=Space.PSUM)
    machine.execute(Matmul(dst, data, identity(machine, 2, "float8_e4m3"), is_transpose=True))
    assert machine.values(dst).tolist() == [[1, 0.5], [-2, 3]]


def test_transpose_mode_on_v2_is_a_product() -> None:
    machine = ReferenceMachine(TRN1)
    data = machine.tile([[1.0, 2.0], [3.0, 4.0]], "bfloat16")
    dst = machine.empty((2, 2), "float32", space=Space.PSUM)
    machine.execute(Matmul(dst, data, identity(machine, 2, "bfloat16"), is_transpose=True))
    assert machine.values(dst).tolist() == [[1, 3], [2, 4]]
    refuses(matmul(TRN1, k=2, m=2, n=2, dst="bfloat16", is_transpose=True), TRN1, "dst", "dtype bfloat16")


def test_transpose_mode_wants_the_identity(machine: ReferenceMachine) -> None:
    data = machine.tile([[1.0, 2.0], [3.0, 4.0]], "float32")
    dst = machine.empty((2, 2), "float32", space=Space.PSUM)
    with pytest.raises(UnverifiedFault, match="not the identity") as caught:
        machine.execute(Matmul(dst, data, data, is_transpose=True))
    assert caught.value.operand == "moving"


def test_transpose_mode_limits() -> None:
    fields: dict[str, Any] = {"k": 4, "m": 3, "n": 4, "is_transpose": True}
    accepts(matmul(dst="bfloat16", **fields), TRN2)
    accepts(matmul(dst="bfloat16", accumulate=False, **fields), TRN2)
    refuses(matmul(dst="float32", **fields), TRN2, "dst", "not that of the transposed data, bfloat16")
    refuses(matmul(dst="bfloat16", **fields | {"n": 3}), TRN2, "moving", "not square")
    with pytest.raises(UnverifiedFault, match="accumulate=True"):
        matmul(dst="bfloat16", accumulate=True, **fields).check(TRN2)


# --- limits of nc_matmul --------------------------------------------------------------------------


def test_memories() -> None:
    machine = ReferenceMachine(TRN2)
    sbuf = machine.empty((4, 4), "float32")
    psum = machine.empty((4, 4), "float32", space=Space.PSUM)
    accepts(Matmul(psum, sbuf, sbuf), TRN2)
    refuses(Matmul(sbuf, sbuf, sbuf), TRN2, "dst", "must be in PSUM")
    refuses(Matmul(psum, psum, sbuf), TRN2, "stationary", "must be in SBUF")
    refuses(Matmul(psum, sbuf, psum), TRN2, "moving", "must be in SBUF")


def test_input_dtypes() -> None:
    accepts(matmul(dtypes=("float8_e4m3", "bfloat16")), TRN1)
    accepts(matmul(dtypes=("float16", "float8_e5m2")), TRN1)
    refuses(matmul(dtypes=("int8", "bfloat16")), TRN2, "stationary", "dtype int8")
    refuses(matmul(dtypes=("bfloat16", "uint16")), TRN2, "moving", "dtype uint16")


def test_ocp_fp8_from_v4_on_and_not_with_the_other_e4m3() -> None:
    accepts(matmul(TRN3, dtypes=("float8_e4m3fn", "float8_e5m2")), TRN3)
    accepts(matmul(TRN3, dtypes=("float8_e4m3", "float8_e4m3")), TRN3)
    refuses(matmul(dtypes=("float8_e4m3fn", "bfloat16")), TRN2, "stationary", "dtype float8_e4m3fn")
    refuses(matmul(TRN3, dtypes=("float8_e4m3fn", "float8_e4m3")), TRN3, "moving", "meets float8_e4m3fn")
    refuses(matmul(TRN3, dtypes=("float8_e4m3", "float8_e4m3fn")), TRN3, "moving", "meets float8_e4m3")


@pytest.mark.parametrize("wide", ["float32", "tfloat32"])
def test_wide_inputs_only_with_each_other(wide: str) -> None:
    accepts(matmul(dtypes=(wide, "float32")), TRN2)
    accepts(matmul(dtypes=("tfloat32", wide)), TRN2)
    refuses(matmul(dtypes=(wide, "bfloat16")), TRN2, "moving", "4-byte dtype")
    refuses(matmul(dtypes=("float16", wide)), TRN2, "stationary", "4-byte dtype")


def test_dst_dtypes() -> None:
    accepts(matmul(), TRN1)
    accepts(matmul(TRN3, dst="bfloat16"), TRN3)
    refuses(matmul(dst="bfloat16"), TRN2, "dst", "dtype bfloat16")
    refuses(matmul(TRN3, dst="float16"), TRN3, "dst", "dtype float16")


def test_sizes() -> None:
    accepts(matmul(k=128, m=128, n=512), TRN1)
    refuses(matmul(m=129, shape=(128, 5)), TRN2, "stationary", "129 columns")
    refuses(matmul(n=513, shape=(3, 512)), TRN2, "moving", "513 columns")
    refuses(matmul(shape=(3, 4)), TRN2, "dst", r"not the \(3, 5\)")
    refuses(matmul(shape=(4, 5)), TRN2, "dst", r"not the \(3, 5\)")
    machine = ReferenceMachine(TRN2)
    dst = machine.empty((3, 5), "float32", space=Space.PSUM)
    refuses(
        Matmul(dst, machine.empty((4, 3), "float32"), machine.empty((5, 5), "float32")),
        TRN2,
        "moving",
        "5 partitions where 'stationary'",
    )


def test_moving_columns_on_v4() -> None:
    accepts(matmul(TRN3, n=4096), TRN3)
    accepts(matmul(TRN3, n=8192, dst="bfloat16"), TRN3)
    refuses(matmul(TRN3, n=4097, shape=(3, 4096)), TRN3, "moving", "at most 4096 columns into float32")
    refuses(matmul(TRN3, n=8193, dst="bfloat16", shape=(3, 8192)), TRN3, "moving", "at most 8192 columns into bfloat16")


def test_result_stays_in_one_psum_bank_before_v4() -> None:
    def placed(offset: int) -> Matmul:
        ins = matmul(n=16)
        dst = AccessPattern(Space.PSUM, ins.dst.dtype, offset, ins.dst.pairs, partitions=3)
        return Matmul(dst, ins.stationary, ins.moving)

    for offset in (0, 2048 - 64, 2048):
        accepts(placed(offset), TRN2)
    refuses(placed(2048 - 60), TRN2, "dst", "crosses a PSUM bank")
    accepts(placed(2048 - 60), TRN3)


def test_the_key_does_not_depend_on_the_bank() -> None:
    ins = matmul()
    other = Matmul(
        AccessPattern(Space.PSUM, ins.dst.dtype, 2048, ins.dst.pairs, partitions=3), ins.stationary, ins.moving
    )
    assert ins.key() == other.key()
    assert matmul().key() == ins.key()
    assert matmul(accumulate=True).key() != ins.key()
    assert matmul(n=6).key() != ins.key()


@pytest.mark.parametrize(
    ("target", "size", "position"),
    [(TRN1, (64, 128), (64, 0)), (TRN1, (128, 64), (0, 64)), (TRN2, (32, 32), (96, 96)), (TRN2, (128, 128), (0, 0))],
)  # fmt: skip
def test_tiles(target: Target, size: tuple[int, int], position: tuple[int, int]) -> None:
    accepts(matmul(target, k=32, m=32, tile_size=size, tile_position=position), target)


@pytest.mark.parametrize(
    ("target", "size", "position", "words"),
    [
        (TRN1, (32, 128), (0, 0), "row size of 32"),
        (TRN1, (128, 32), (0, 0), "column size of 32"),
        (TRN2, (48, 128), (0, 0), "row size of 48"),
        (TRN2, (64, 128), (32, 0), "start row of 32"),
        (TRN2, (64, 128), (128, 0), "start row of 128"),
        (TRN2, (128, 64), (0, 32), "start column of 32"),
        (TRN2, (32, 32), (-32, 0), "start row of -32"),
        (TRN2, (32,), (0, 0), "tile_size"),
        (TRN2, (32, 32), (), "tile_position is missing"),
        (TRN2, (), (0, 32), "tile_size is missing"),
    ],
)
def test_tiles_refused(target: Target, size: tuple[int, ...], position: tuple[int, ...], words: str) -> None:
    refuses(matmul(target, k=32, m=32, tile_size=size, tile_position=position), target, None, words)


def test_operands_fit_the_tile() -> None:
    tile: dict[str, Any] = {"tile_size": (64, 32), "tile_position": (64, 32)}
    accepts(matmul(k=64, m=32, **tile), TRN2)
    refuses(matmul(k=65, m=32, **tile), TRN2, "stationary", "65 contraction rows")
    refuses(matmul(k=64, m=33, **tile), TRN2, "stationary", "33 columns")


def double(
    target: Target = TRN2, left: str = "float8_e4m3", right: str = "float8_e5m2", pair: int = 2, m: int = 3, n: int = 5,
    **fields: Any,
) -> Matmul:  # fmt: skip
    machine = ReferenceMachine(target)
    return Matmul(
        machine.empty((m, n), "float32", space=Space.PSUM),
        machine.empty((128, pair, m), left), machine.empty((128, 2, n), right), perf_mode=DOUBLE_ROW, **fields,
    )  # fmt: skip


def test_double_row_limits() -> None:
    accepts(double(), TRN2)
    accepts(double(m=128, n=512), TRN2)
    accepts(double(TRN3, "float8_e4m3fn"), TRN3)
    refuses(double(TRN1), TRN1, None, "does not exist on this generation")
    refuses(double(left="bfloat16"), TRN2, "stationary", "dtype bfloat16 is not accepted with perf_mode")
    refuses(double(right="float16"), TRN2, "moving", "dtype float16 is not accepted with perf_mode")
    refuses(double(pair=3), TRN2, "stationary", "leading free dimension of 2")
    refuses(double(is_transpose=True), TRN2, None, "with is_transpose")
    refuses(double(tile_size=(128, 64), tile_position=(0, 0)), TRN2, None, "column tiles of 64")
    refuses(double(n=513), TRN2, "moving", "513 columns")
    machine = ReferenceMachine(TRN2)
    flat = machine.empty((128, 2), "float8_e4m3")
    dst = machine.empty((1, 1), "float32", space=Space.PSUM)
    refuses(Matmul(dst, flat, flat, perf_mode=DOUBLE_ROW), TRN2, "stationary", "leading free dimension of 2")


# --- nc_transpose ---------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    p=st.integers(1, 128), f=st.integers(1, 128), target=st.sampled_from([TRN1, TRN2, TRN3]),
    dtype=st.sampled_from(["float32", "bfloat16", "float16", "int32", "int16", "uint8", "int8", "float8_e4m3"]),
)  # fmt: skip
def test_transpose_of_any_legal_shape(p: int, f: int, target: Target, dtype: str) -> None:
    machine = ReferenceMachine(target)
    values = np.random.default_rng(p).integers(0, 8, (p, f))
    data = machine.tile(values, dtype)
    dst = machine.empty((f, p), dtype, space=Space.PSUM)
    machine.execute(TensorTranspose(dst, data))
    assert np.array_equal(machine.values(dst).astype(np.int64), values.T)


def test_transpose_flattens_free_dimensions(machine: ReferenceMachine) -> None:
    values = random(4, 2, 3)
    dst = machine.empty((6, 4), "float32", space=Space.PSUM)
    machine.execute(TensorTranspose(dst, machine.tile(values), engine=Engine.tensor))
    assert np.array_equal(machine.values(dst), values.reshape(4, 6).T)


def test_transpose_on_v2_spreads_nan_over_its_row() -> None:
    machine = ReferenceMachine(TRN1)
    data = machine.tile([[1.0, np.nan, np.inf], [2.0, 3.0, 4.0]], "float32")
    dst = machine.empty((3, 2), "float32", space=Space.PSUM)
    machine.execute(TensorTranspose(dst, data))
    result = machine.values(dst)
    assert result[0].tolist() == [1, 2]
    assert np.isnan(result[1]).all()
    assert result[2, 0] == np.inf
    assert np.isnan(result[2, 1])


def transpose(shape: tuple[int, ...], dst: tuple[int, ...], dtype: str = "bfloat16", into: str = "",
              **fields: Any) -> TensorTranspose:  # fmt: skip
    machine = ReferenceMachine(TRN3)
    space = fields.pop("space", Space.PSUM)
    return TensorTranspose(machine.empty(dst, into or dtype, space=space), machine.empty(shape, dtype), **fields)


def test_transpose_limits() -> None:
    accepts(transpose((128, 128), (128, 128)), TRN2)
    accepts(transpose((4, 3), (3, 4), "int32"), TRN1)
    accepts(transpose((4, 3), (3, 4), "uint8", "uint16"), TRN2)
    refuses(transpose((4, 129), (128, 4)), TRN2, "data", "129 elements per partition")
    refuses(transpose((4, 3), (4, 3)), TRN2, "dst", r"not the \(3, 4\) of the transpose")
    refuses(transpose((4, 3), (3, 4), "float32", "bfloat16"), TRN2, "dst", "not that of the transposed data")
    refuses(transpose((4, 3), (3, 4), space=Space.SBUF), TRN2, "dst", "must be in PSUM")
    refuses(transpose((4, 3), (3, 4), engine=Engine.vector), TRN2, None, "engine is vector")
    crossing = transpose((16, 3), (3, 16), "float32")
    dst = AccessPattern(Space.PSUM, crossing.dst.dtype, 2000, crossing.dst.pairs, partitions=3)
    refuses(TensorTranspose(dst, crossing.data), TRN2, "dst", "crosses a PSUM bank")


def test_transpose_into_float32_is_for_v2() -> None:
    accepts(transpose((4, 3), (3, 4), "bfloat16", "float32"), TRN1)
    refuses(transpose((4, 3), (3, 4), "bfloat16", "float32"), TRN2, "dst", "not that of the transposed data")


# --- work -----------------------------------------------------------------------------------------


def test_work_of_a_product() -> None:
    work = matmul(k=64, m=32, n=100, tile_size=(64, 32), tile_position=(64, 96)).work(TRN2)
    assert (work.kind, work.elements, work.rows, work.columns) == (WorkKind.MATMUL, 100, 64, 32)
    assert work.flops == 2 * 64 * 32 * 100
    assert work.row_tile == (64, 32, 64, 96)
    assert not work.flags & (WorkFlag.FP32 | WorkFlag.TRANSPOSE | WorkFlag.ONE_ZERO | WorkFlag.DOUBLE_ROW)


def test_work_flags() -> None:
    def flags(**fields: Any) -> int:
        return matmul(**fields).work(TRN2).flags

    float32 = ("float32", "float32")
    assert flags(dtypes=float32) & WorkFlag.FP32
    assert flags(dtypes=("tfloat32", "float32")) & WorkFlag.FP32
    assert not flags(dtypes=("tfloat32", "tfloat32")) & WorkFlag.FP32
    assert flags(is_transpose=True) & WorkFlag.TRANSPOSE
    assert flags(dtypes=float32, is_moving_onezero=True) & WorkFlag.ONE_ZERO
    assert flags(dtypes=float32, is_stationary_onezero=True) & WorkFlag.ONE_ZERO
    assert not flags(is_moving_onezero=True) & WorkFlag.ONE_ZERO  # no effect on narrower dtypes
    work = double().work(TRN2)
    assert work.flags & WorkFlag.DOUBLE_ROW
    assert (work.columns, work.elements, work.flops) == (3, 5, 2 * 256 * 3 * 5)


def test_work_of_a_transpose() -> None:
    work = transpose((100, 20), (20, 100), "float32").work(TRN2)
    assert (work.kind, work.elements, work.rows, work.columns) == (WorkKind.PE_TRANSPOSE, 100, 100, 20)
    assert work.flags & WorkFlag.TRANSPOSE
    assert work.flags & WorkFlag.FP32
    assert not transpose((4, 3), (3, 4)).work(TRN2).flags & WorkFlag.FP32
