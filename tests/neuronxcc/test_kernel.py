"""Kernels of the older namespace: modes, grids, results, precision, and the functions that time and save them."""

import json
import logging

import ml_dtypes
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
import pytest
from neuronxcc.nki import baremetal, benchmark, profile, simulate_kernel, trace

import trn_sim
from isa.faults import ConstraintFault, OutOfBoundsFault, UnimplementedFault

A = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)


def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
    return out


@pytest.mark.parametrize("mode", ["auto", "jax", "torchxla", "baremetal", "simulation", "benchmark"])
def test_modes(mode):
    np.testing.assert_array_equal(nki.jit(double, mode=mode)(A), 2 * A)
    np.testing.assert_array_equal(nki.jit(mode=mode)(double)(A), 2 * A)


def test_unknown_mode_is_refused():
    with pytest.raises(ConstraintFault, match="mode='fast'"):
        nki.jit(double, mode="fast")


def test_plain_functions_are_kernels_of_the_namespace_they_import():
    np.testing.assert_array_equal(trn_sim.run(double, A).result, 2 * A)


def test_targets(monkeypatch):
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)

    @nki.jit
    def version(x):
        out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
        nl.store(out, nisa.get_nc_version().value)
        return out

    assert version(A) == 3
    assert nki.jit(version, platform_target="trn1")(A) == 2
    assert trn_sim.run(version, A, target="trn3").result == 4
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    assert version(A) == 2


def test_simulate_kernel_writes_into_arguments():
    def add(a, b, out):
        i = nl.program_id(0)
        p, f = nl.arange(64)[:, None], nl.arange(64)[None, :]
        nl.store(out[i * 64 + p, f], nl.load(a[i * 64 + p, f]) + nl.load(b[i * 64 + p, f]))

    out = np.empty_like(A)
    assert simulate_kernel(nki.jit(add)[2], A, A, out) is None
    np.testing.assert_array_equal(out, 2 * A)


def test_simulation_mode_keeps_low_precision_in_float32(monkeypatch):
    def third(x):
        out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.multiply(nl.load(x), 1 / 3, dtype=nl.bfloat16))
        return out

    exact = A * np.float32(1 / 3)
    np.testing.assert_array_equal(simulate_kernel(third, A), exact)
    np.testing.assert_array_equal(nki.jit(third)(A), exact.astype(ml_dtypes.bfloat16).astype(np.float32))
    monkeypatch.setenv("NKI_PRECISE_FP", "1")
    np.testing.assert_array_equal(simulate_kernel(third, A), exact.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_grid():
    @nki.jit
    def scaled(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        i, j = nl.program_id(0), nl.program_id(axis=1)
        assert (nl.program_ndim(), nl.num_programs(), nl.num_programs(axes=[0, 1])) == (2, 8, 8)
        assert (nl.num_programs(0), nl.num_programs(1)) == (4, 2)
        nl.store(out[i, j], nl.load(x[i, j]) * (10 * i + j))
        return out

    x = A.reshape(4, 2, 64, 16)
    factor = (10 * np.arange(4)[:, None] + np.arange(2))[:, :, None, None]
    np.testing.assert_array_equal(scaled[4, 2](x), x * factor)
    for grid in [(nl.spmd_dim(nl.nc(2), 2), 2), (nl.nc(2) * 2, 2), (2 * nl.nc(2), 2)]:
        np.testing.assert_array_equal(scaled[grid](x), x * factor)
    for bad in (0, "2", (2, -1)):
        with pytest.raises(ConstraintFault, match="scaled"):
            scaled[bad]


def test_axes_of_the_grid_are_checked():
    @nki.jit
    def kernel(x):
        assert (nl.program_id(0), nl.program_ndim(), nl.num_programs(0)) == (0, 0, 1)
        nl.program_id(1)

    with pytest.raises(ConstraintFault, match="axis 1"):
        kernel(A)


def test_instances_make_the_same_tensors():
    @nki.jit
    def kernel(x):
        return nl.ndarray((nl.program_id(0) + 1, 4), dtype=nl.float32, buffer=nl.shared_hbm)

    with pytest.raises(ConstraintFault, match="instance"):
        kernel[2](A)


def test_kernels_within_kernels():
    @trace
    def inner(tile):
        return nl.add(tile, 1.0)

    @nki.jit(mode="trace")
    def stored(out, tile):
        nl.store(out, tile)

    @nki.jit
    def outer(x: nt.tensor, y: nt.mutable_tensor):
        stored(y, inner(nl.load(x)))
        return y

    y = np.zeros_like(A)
    assert outer(A, y) is y
    np.testing.assert_array_equal(y, A + 1)


def test_results_in_any_memory():
    @nki.jit
    def kernel(x):
        part = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.hbm)
        nl.store(part[0:64], nl.load(x[0:64]))
        return part, nl.load(x) + 1

    with pytest.warns(UserWarning, match="is in sbuf"):
        part, tile = kernel(A)
    np.testing.assert_array_equal(part[:64], A[:64])
    np.testing.assert_array_equal(tile, A + 1)


def test_run_time_rows_beyond_the_tensor():
    def kernel(x, rows):
        out = nl.ndarray((2, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x[nl.load(rows), nl.arange(64)[None, :]]))
        return out

    rows = np.array([[5], [130]], np.int32)
    with pytest.raises(OutOfBoundsFault, match="130"):
        nki.jit(kernel)(A, rows)
    with pytest.raises(IndexError, match="index 8320 is out of bounds for axis 0 with size 8192") as numpys:
        simulate_kernel(kernel, A, rows)
    assert type(numpys.value) is IndexError
    assert isinstance(numpys.value.__cause__, OutOfBoundsFault)
    np.testing.assert_array_equal(simulate_kernel(kernel, A, rows % 128), A[[5, 2]])


def test_a_fault_leaves_nothing_behind():
    @nki.jit
    def kernel(x):
        nl.load(x)
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        kernel(A)
    run = trn_sim.run(nki.jit(double), A)
    assert len(run.program) == 3


# --- time and files -----------------------------------------------------------------------------------


def test_benchmark():
    timed = benchmark(warmup=2, iters=5)(double)
    with pytest.raises(ConstraintFault, match="has not run yet"):
        _ = timed.benchmark_result
    timed(A)
    latency = timed.benchmark_result.nc_latency
    assert (
        latency.get_latency_percentile(50)
        == latency.get_latency_percentile(99)
        == timed.last_run.profile.total_ns / 1e3
    )
    with pytest.raises(ValueError, match="percentile 51"):
        latency.get_latency_percentile(51)
    with pytest.raises(ConstraintFault, match="iters=0"):
        benchmark(iters=0)(double)


def test_benchmark_of_a_grid():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out[nl.program_id(0)], nl.load(x[nl.program_id(0)]))
        return out

    timed = benchmark(kernel)
    np.testing.assert_array_equal(timed[4](A.reshape(4, 32, 64)), A.reshape(4, 32, 64))
    four = timed.benchmark_result.nc_latency.get_latency_percentile(50)
    benchmark(kernel[2])(A.reshape(2, 64, 64))
    timed[1](A.reshape(1, 128, 64))
    assert timed.benchmark_result.nc_latency.get_latency_percentile(50) < four


def test_baremetal_saves_program_and_profile(tmp_path):
    saved = baremetal(save_neff_name="k.neff", save_trace_name="k.ntff", artifacts_dir=str(tmp_path / "d"))(double)
    np.testing.assert_array_equal(saved(A), 2 * A)
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["k.neff", "k.ntff"]
    assert json.loads((tmp_path / "d" / "k.ntff").read_text())["summary"]["hbm_read_bytes"] == A.nbytes
    np.testing.assert_array_equal(baremetal(double, additional_compile_opt="-O1")(A), 2 * A)


def test_profile(tmp_path):
    folder = tmp_path / "profiles"
    timed = profile(working_directory=str(folder), save_trace_name="p.ntff", num_execs=4, profile_nth=2)(double)
    timed(A)
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert names == [
        "file.neff", "json_reports/p_exec_2.json", "json_reports/p_exec_4.json", "p_exec_2.ntff", "p_exec_4.ntff",
    ]  # fmt: skip
    with pytest.raises(FileExistsError, match="overwrite=True"):
        timed(A)
    profile(double, working_directory=str(folder), overwrite=True)(A)
    assert (folder / "profile.ntff").exists()
    with pytest.raises(ConstraintFault, match="absolute path"):
        profile(working_directory="here")(double)


# --- what else is imported ----------------------------------------------------------------------------


def test_names_of_the_package():
    from neuronxcc import nki as again

    assert again is nki
    assert logging.OFF > logging.CRITICAL
    assert not hasattr(nki, "simulate")
    with pytest.raises(UnimplementedFault, match="frameworks"):
        nki.FrameworkKernel(None)
