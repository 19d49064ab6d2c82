"""Bad input, through the front door: one clear fault each, with instruction, operand, limit, generation and the user's
source line; beside each stands the twin that is right."""

import inspect

import numpy as np
import pytest

import trn_sim
from isa.faults import CapacityFault, ConstraintFault, Fault, OutOfBoundsFault, UninitializedReadFault

trn_sim.activate()

import nki
import nki.isa as nisa
import nki.language as nl

A = np.arange(128 * 512, dtype=np.float32).reshape(128, 512)


def fault_of(kernel, *args, target="trn2", **kwargs) -> Fault:
    with pytest.raises(Fault) as caught:
        trn_sim.run(kernel, *args, target=target, **kwargs)
    return caught.value


def assert_names(fault: Fault, kernel, marker: str, *, instruction: str | None, operand: str | None) -> None:
    """The fault names the instruction, the operand, a limit, the generation, and the line holding ``marker``."""
    lines, first = inspect.getsourcelines(inspect.unwrap(kernel))
    expected = first + next(i for i, text in enumerate(lines) if marker in text)
    assert fault.file == __file__
    assert fault.line == expected
    assert fault.instruction == instruction
    assert fault.operand == operand
    text = str(fault)
    assert f"{__file__}:{expected}" in text
    if instruction is not None:
        assert instruction in text
        assert fault.target is not None
        assert "NeuronCore-v" in fault.target
        assert fault.target in text


def load(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def give(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


# --- shape ------------------------------------------------------------------------------------------


@nki.jit
def add_columns(a, columns):
    tile = load(a)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=out, data1=tile, data2=tile[:, 0:columns], op=nl.add)  # HERE
    return give(out)


def test_wrong_shape():
    fault = fault_of(add_columns, A, 256)
    assert isinstance(fault, ConstraintFault)
    assert_names(fault, add_columns, "HERE", instruction="tensor_tensor", operand="data2")
    assert "256" in str(fault)
    assert "512" in str(fault)


def test_wrong_shape_twin():
    np.testing.assert_array_equal(trn_sim.run(add_columns, A, 512, target="trn2").result, A + A)


# --- dtype ------------------------------------------------------------------------------------------


@nki.jit
def matmul_mixed(a, dtype):
    tile = load(a)
    other = nl.ndarray((128, 128), dtype=dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=other, src=tile[:, 0:128])
    psum = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=psum, stationary=other, moving=tile)  # HERE
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=out, src=psum)
    return give(out)


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_wrong_dtype(target):
    fault = fault_of(matmul_mixed, A, nl.bfloat16, target=target)
    assert isinstance(fault, ConstraintFault)
    assert fault.instruction == "nc_matmul"
    assert fault.operand in ("stationary", "moving")
    assert_names(fault, matmul_mixed, "HERE", instruction="nc_matmul", operand=fault.operand)


def test_wrong_dtype_twin():
    result = trn_sim.run(matmul_mixed, A / 65536, nl.float32, target="trn2").result
    np.testing.assert_allclose(result, (A[:, :128] / 65536).T @ (A / 65536), rtol=1e-5)


# --- partitions -------------------------------------------------------------------------------------


@nki.jit
def copy_partitions(rows):
    source = nl.ndarray((rows, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=source, value=1.0)  # HERE
    return give(source)


def test_too_many_partitions():
    fault = fault_of(copy_partitions, 256)
    assert isinstance(fault, (ConstraintFault, CapacityFault))
    assert "256" in str(fault)
    assert "128" in str(fault)
    assert fault.file == __file__


def test_partitions_twin():
    assert trn_sim.run(copy_partitions, 128, target="trn2").result.sum() == 128 * 8


@nki.jit
def start_partition(a, start):
    tile = load(a)
    out = nl.ndarray((32, 512), dtype=a.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=out, src=tile[start : start + 32, :])  # HERE
    return give(out)


def test_start_partition():
    fault = fault_of(start_partition, A, 16)
    assert isinstance(fault, ConstraintFault)
    assert_names(fault, start_partition, "HERE", instruction="tensor_copy", operand="src")


def test_start_partition_twin():
    np.testing.assert_array_equal(trn_sim.run(start_partition, A, 32, target="trn2").result, A[32:64])


# --- PSUM banks -------------------------------------------------------------------------------------


@nki.jit
def across_banks(a, shift):
    tile = load(a)
    psum = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=psum[:, shift : shift + 512], stationary=tile[:, 0:128], moving=tile)  # HERE
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=out, src=psum[:, shift : shift + 512])
    return give(out)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_bank_crossing(target):
    fault = fault_of(across_banks, A, 256, target=target)
    assert isinstance(fault, ConstraintFault)
    assert_names(fault, across_banks, "HERE", instruction="nc_matmul", operand="dst")
    assert "bank" in str(fault)


def test_bank_crossing_twin():
    small = A / 65536
    result = trn_sim.run(across_banks, small, 512, target="trn2").result
    np.testing.assert_allclose(result, small[:, :128].T @ small, rtol=1e-5)


# --- capacity ---------------------------------------------------------------------------------------


@nki.jit
def hold_tiles(count):
    tiles = []
    for i in range(count):
        tile = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf, name=f"tile{i}")  # HERE
        nisa.memset(dst=tile, value=float(i))
        tiles.append(tile)
    return give(tiles[-1])


@pytest.mark.parametrize(("target", "fits"), [("trn1", 12), ("trn2", 14), ("trn3", 16)])
def test_sbuf_overflow(target, fits):
    fault = fault_of(hold_tiles, fits + 1, target=target)
    assert isinstance(fault, CapacityFault)
    assert_names(fault, hold_tiles, "HERE", instruction=None, operand=None)
    assert "tile0" in str(fault)
    assert "SBUF" in str(fault)
    assert trn_sim.run(hold_tiles, fits, target=target).result[0, 0] == fits - 1


# --- uninitialised reads ----------------------------------------------------------------------------


@nki.jit
def partly_written(width, dtype):
    tile = nl.ndarray((128, 64), dtype=dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile[:, 0:width], value=1 if dtype == nl.int32 else 1.0)
    top = nl.ndarray((128, 1), dtype=dtype, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=top, op=nl.maximum, data=tile, axis=1)  # HERE
    return give(top)


@pytest.mark.parametrize("dtype", [nl.float32, nl.bfloat16, nl.int32])
def test_uninitialized_read(dtype):
    fault = fault_of(partly_written, 63, dtype)
    assert isinstance(fault, UninitializedReadFault)
    assert fault.line is not None
    assert fault.file == __file__
    assert fault.instruction == "tensor_reduce"


def test_uninitialized_read_twin():
    assert (trn_sim.run(partly_written, 64, nl.float32, target="trn2").result == 1).all()


@nki.jit
def never_written(a):
    return nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)


def test_output_never_written():
    fault = fault_of(never_written, A)
    assert "never" in str(fault)


# --- bounds -----------------------------------------------------------------------------------------


@nki.jit
def slice_to(a, stop):
    tile = load(a)
    return give(tile[:, 0:stop])  # HERE


def test_index_out_of_bounds():
    fault = fault_of(slice_to, A, 513)
    assert isinstance(fault, OutOfBoundsFault)
    assert_names(fault, slice_to, "HERE", instruction=None, operand=None)
    assert "513" in str(fault)
    assert "512" in str(fault)


def test_index_twin():
    np.testing.assert_array_equal(trn_sim.run(slice_to, A, 512, target="trn2").result, A)


@nki.jit
def gather_rows(table, indices):
    picked = load(indices)
    rows = nl.ndarray((128, table.shape[1]), dtype=table.dtype, buffer=nl.sbuf)
    width = table.shape[1]
    nisa.dma_copy(dst=rows, src=table.ap([[width, 128], [1, width]], vector_offset=picked))  # HERE
    return give(rows)


def test_run_time_index_out_of_bounds():
    indices = np.zeros((128, 1), np.int32)
    indices[77] = 128
    fault = fault_of(gather_rows, A, indices)
    assert isinstance(fault, OutOfBoundsFault)
    assert fault.instruction == "dma_copy"
    assert "128" in str(fault)
    assert "77" in str(fault)


def test_run_time_index_twin():
    indices = np.arange(128, dtype=np.int32)[::-1].reshape(128, 1).copy()
    np.testing.assert_array_equal(trn_sim.run(gather_rows, A, indices, target="trn2").result, A[::-1])
