"""The documented cost formulas, to the cycle.

The table is written from the cost sections of nki.isa (NKI beta 1) and the architecture guides: N elements per
partition, at least 64 cycles unless said otherwise.  NeuronCore-v2 runs all of them; where measurements on v3 differ
(rates files, ``conflict``) v3 is tested against those in test_measured.py.
"""

from math import ceil

import pytest

from isa.engine import Engine
from isa.work import Work, WorkFlag, WorkKind
from perf_model.cost import cost
from perf_model.rates import load_rates

F, K = WorkFlag, WorkKind
VECTOR, SCALAR, GPSIMD, TENSOR = Engine.vector, Engine.scalar, Engine.gpsimd, Engine.tensor
SIZES = (1, 8, 63, 64, 65, 128, 511, 512, 2048)
BOTH_SBUF, MIXED = F.SRC_SBUF | F.TWO_TENSORS, F.SRC_SBUF | F.SRC_PSUM | F.TWO_TENSORS
NARROW = F.ALL_16BIT | F.CONTIGUOUS
SBUF, PSUM = F.SRC_SBUF, F.SRC_PSUM


def at_least_64(cycles):
    return max(64, cycles)


ELEMENTWISE = [
    # name, engine, kind, flags, cycles of N
    ("nc_transpose 32x32", VECTOR, K.VECTOR_TRANSPOSE, SBUF, at_least_64),
    ("activation", SCALAR, K.ACTIVATION, PSUM | F.VECTOR_OPERAND, at_least_64),
    ("activation_reduce", SCALAR, K.ACTIVATION, PSUM | F.REDUCED, lambda n: at_least_64(n) + 64),
    ("tensor_copy", VECTOR, K.COPY, SBUF, at_least_64),
    ("tensor_copy", SCALAR, K.COPY, SBUF, at_least_64),
    ("tensor_copy", GPSIMD, K.COPY, SBUF, at_least_64),
    ("tensor_copy, run-time address", VECTOR, K.COPY, SBUF | F.DYNAMIC, lambda n: max(600, n)),
    ("tensor_copy, run-time address", SCALAR, K.COPY, SBUF | F.DYNAMIC, lambda n: max(600, n)),
    ("tensor_copy, run-time address", GPSIMD, K.COPY, SBUF | F.DYNAMIC, lambda n: max(600, n)),
    ("tensor_copy_predicated, SBUF and PSUM", VECTOR, K.COPY_PREDICATED, MIXED, at_least_64),
    ("tensor_copy_predicated, SBUF", VECTOR, K.COPY_PREDICATED, BOTH_SBUF, lambda n: at_least_64(2 * n)),
    ("tensor_tensor, SBUF and PSUM", VECTOR, K.TENSOR_TENSOR, MIXED, at_least_64),
    ("tensor_tensor, SBUF", VECTOR, K.TENSOR_TENSOR, BOTH_SBUF | F.FAST_OPS, lambda n: at_least_64(2 * n)),
    ("tensor_tensor, SBUF, bf16", VECTOR, K.TENSOR_TENSOR, BOTH_SBUF | NARROW | F.FAST_OPS, at_least_64),
    ("tensor_tensor, SBUF, bf16, other operator", VECTOR, K.TENSOR_TENSOR, BOTH_SBUF | NARROW,
     lambda n: at_least_64(2 * n)),
    ("tensor_tensor, SBUF, bf16, strided", VECTOR, K.TENSOR_TENSOR, BOTH_SBUF | F.ALL_16BIT | F.FAST_OPS,
     lambda n: at_least_64(2 * n)),
    ("tensor_scalar", VECTOR, K.TENSOR_SCALAR, SBUF | F.VECTOR_OPERAND, at_least_64),
    ("tensor_scalar", SCALAR, K.TENSOR_SCALAR, SBUF, at_least_64),
    ("tensor_scalar_reduce", VECTOR, K.TENSOR_SCALAR, SBUF | F.REDUCED, lambda n: at_least_64(n) + 64),
    ("scalar_tensor_tensor, bf16", VECTOR, K.SCALAR_TENSOR_TENSOR, BOTH_SBUF | NARROW | F.FAST_OPS,
     lambda n: n if n % 2 == 0 else 2 * n),
    ("scalar_tensor_tensor", VECTOR, K.SCALAR_TENSOR_TENSOR, BOTH_SBUF, lambda n: 2 * n),
    ("tensor_reduce, bf16 add", VECTOR, K.REDUCE, SBUF | NARROW | F.FAST_OPS, lambda n: n / 2),
    ("tensor_reduce", VECTOR, K.REDUCE, SBUF, lambda n: n),
    ("tensor_tensor_scan", VECTOR, K.SCAN, BOTH_SBUF, lambda n: at_least_64(2 * n)),
    ("bn_stats", VECTOR, K.BN_STATS, SBUF, at_least_64),
    ("bn_aggr", VECTOR, K.BN_AGGR, SBUF, lambda n: at_least_64(13 * n / 3)),
    ("reciprocal", VECTOR, K.RECIPROCAL, SBUF, lambda n: at_least_64(8 * n)),
    ("reciprocal", SCALAR, K.RECIPROCAL, SBUF, at_least_64),
    ("dropout", VECTOR, K.SELECT, SBUF, at_least_64),
    ("range_select", VECTOR, K.SELECT, SBUF | F.VECTOR_OPERAND, at_least_64),
    ("nc_stream_shuffle", VECTOR, K.SHUFFLE, SBUF, at_least_64),
    ("memset 0, bf16", VECTOR, K.MEMSET, NARROW | F.ZERO, lambda n: at_least_64(n / 2)),
    ("memset 0, fp32", VECTOR, K.MEMSET, F.ALL_32BIT | F.ZERO, at_least_64),
    ("memset 1, bf16", VECTOR, K.MEMSET, NARROW, at_least_64),
    ("max8", VECTOR, K.MAX8, SBUF, lambda n: n),
    ("nc_find_index8", VECTOR, K.FIND_INDEX8, SBUF, lambda n: n),
    ("nc_match_replace8", VECTOR, K.MATCH_REPLACE8, SBUF, at_least_64),
    ("affine_select", GPSIMD, K.AFFINE_SELECT, SBUF, lambda n: 150 + n),
    ("iota", GPSIMD, K.IOTA, F.NONE, lambda n: 150 + n),
    ("rsqrt", GPSIMD, K.RSQRT, SBUF, lambda n: at_least_64(4 * n)),
]  # fmt: skip


def cycles(work, engine, target="trn1"):
    return cost(work, engine, load_rates(target)).cycles


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("name", "engine", "kind", "flags", "formula"), ELEMENTWISE,
                         ids=[f"{row[0]} on {row[1].name}" for row in ELEMENTWISE])  # fmt: skip
def test_elementwise(name, engine, kind, flags, formula, n):
    work = Work(kind=kind, elements=n, rows=128, flags=int(flags))
    assert cycles(work, engine) == pytest.approx(formula(n), rel=1e-12)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("name", "engine", "kind", "flags", "formula"), ELEMENTWISE,
                         ids=[f"{row[0]} on {row[1].name}" for row in ELEMENTWISE])  # fmt: skip
def test_on_v2_the_interval_is_the_formula(name, engine, kind, flags, formula, n):
    work = Work(kind=kind, elements=n, rows=128, flags=int(flags))
    clock_ghz = {VECTOR: 1.12, SCALAR: 1.4, GPSIMD: 1.4}[engine]
    assert cost(work, engine, load_rates("trn1")).interval_ps == pytest.approx(1e3 * formula(n) / clock_ghz, abs=1)


@pytest.mark.parametrize("moving", [1, 63, 64, 128, 512])
@pytest.mark.parametrize("stationary", [1, 32, 64, 128])
@pytest.mark.parametrize(("flags", "factor"), [(F.NONE, 1), (F.FP32, 4), (F.FP32 | F.ONE_ZERO, 2)])
@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_matmul(target, flags, factor, stationary, moving):
    work = Work(kind=K.MATMUL, elements=moving, rows=128, columns=stationary, flags=int(flags))
    assert cycles(work, TENSOR, target) == factor * max(min(64, stationary), moving)


@pytest.mark.parametrize(("partitions", "free"), [(128, 128), (128, 32), (32, 128), (16, 16)])
@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_transpose_on_the_tensor_engine(target, partitions, free):
    work = Work(kind=K.PE_TRANSPOSE, elements=partitions, rows=partitions, columns=free, flags=int(F.TRANSPOSE))
    assert cycles(work, TENSOR, target) == max(partitions, min(64, free))


def test_double_row_takes_the_time_of_half_the_contraction():
    plain = Work(kind=K.MATMUL, elements=512, rows=128, columns=128)
    double = Work(kind=K.MATMUL, elements=512, rows=128, columns=128, flags=int(F.DOUBLE_ROW))
    rates = load_rates("trn2")
    assert cost(double, TENSOR, rates).interval_ps == cost(plain, TENSOR, rates).interval_ps


def test_chains_of_transposes_run_twice_as_fast_on_v4():
    work = Work(kind=K.PE_TRANSPOSE, elements=128, rows=128, columns=128, flags=int(F.TRANSPOSE))
    assert cycles(work, TENSOR, "trn3") == 64


def test_load_stationary_is_a_quarter_of_its_columns_on_v2():
    work = Work(kind=K.MATMUL, elements=512, rows=128, columns=128)
    assert cost(work, TENSOR, load_rates("trn1")).load_ps == pytest.approx(32 / 2.8 * 1e3, abs=1)


@pytest.mark.parametrize("per_index", [1, 2, 8, 32])
@pytest.mark.parametrize("itemsize", [1, 2, 4])
def test_local_gather(per_index, itemsize):
    indices = 96
    work = Work(
        kind=K.LOCAL_GATHER,
        elements=indices,
        rows=128,
        columns=indices * per_index,
        inputs=per_index,
        nbytes=128 * indices * per_index * itemsize,
    )
    speed = ((28 + 4 * per_index) / (4 * per_index)) / min(4 / itemsize, per_index)
    assert cycles(work, GPSIMD) == pytest.approx(150 + indices * per_index / speed)


@pytest.mark.parametrize("n", [1, 512, 513, 2048])
def test_n_gather_starts_once_per_512_elements(n):
    rates = load_rates("trn1").override("gpsimd.gather_cycles_per_element", 1)
    work = Work(kind=K.N_GATHER, elements=n, rows=128)
    assert cost(work, GPSIMD, rates).cycles == 150 * ceil(n / 512) + n


@pytest.mark.parametrize(
    ("kind", "flags", "speed"),
    [
        (K.COPY, NARROW | SBUF, 4),
        (K.TENSOR_SCALAR, NARROW | SBUF, 4),
        (K.COPY, F.ALL_16BIT | SBUF, 2),
        (K.COPY, NARROW | PSUM, 2),
        (K.COPY, NARROW | SBUF | F.DST_PSUM, 2),
        (K.COPY, F.ALL_16BIT | PSUM, 1),
        (K.COPY, NARROW | PSUM | F.DST_PSUM, 1),
        (K.ACTIVATION, NARROW | SBUF, 1),
    ],
)
def test_performance_modes_of_v3(kind, flags, speed):
    work = Work(kind=kind, elements=2048, rows=128, flags=int(flags))
    assert cycles(work, VECTOR, "trn2") == 2048 / speed
    assert cycles(work, VECTOR, "trn1") == 2048


@pytest.mark.parametrize(("flags", "factor"), [(BOTH_SBUF | F.ALL_16BIT, 1), (BOTH_SBUF, 2), (MIXED, 1)])
def test_tensor_tensor_performance_mode_of_v3(flags, factor):
    work = Work(kind=K.TENSOR_TENSOR, elements=2048, rows=128, flags=int(flags))
    assert cycles(work, VECTOR, "trn2") == 2048 * factor


def test_fp8_has_performance_modes_from_v4():
    work = Work(kind=K.COPY, elements=2048, rows=128, flags=int(SBUF | F.ALL_8OR16BIT | F.CONTIGUOUS))
    assert cycles(work, VECTOR, "trn2") == 2048
    assert cycles(work, VECTOR, "trn3") == 512


def test_scalar_engine_performance_mode_of_v4():
    work = Work(kind=K.TENSOR_SCALAR, elements=2048, rows=128, flags=int(NARROW | SBUF))
    assert (cycles(work, SCALAR, "trn2"), cycles(work, SCALAR, "trn3")) == (2048, 1024)


def test_exponential_on_v4_is_four_times_the_scalar_engine():
    exponential = Work(kind=K.EXPONENTIAL, elements=2048, rows=128, flags=int(SBUF))
    activation = Work(kind=K.ACTIVATION, elements=2048, rows=128, flags=int(SBUF))
    assert 4 * cycles(exponential, VECTOR, "trn3") == cycles(activation, SCALAR, "trn3")


def test_strides_above_16_bytes_run_at_half_rate():
    near = Work(kind=K.BN_STATS, elements=512, rows=128, flags=int(SBUF))
    far = Work(kind=K.BN_STATS, elements=512, rows=128, flags=int(SBUF | F.WIDE_STRIDE))
    assert cycles(far, VECTOR) == 2 * cycles(near, VECTOR)
