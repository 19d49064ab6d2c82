"""Calling kernels: arrays in and out, in place, nested, scheduled, refused; what a run leaves behind."""

import inspect
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

import trn_sim
from trn_sim.nki import kernel as kernels
from trn_sim.nki._support import NkiNote

trn_sim.activate()

import nki
import nki.isa as nisa
import nki.language as nl
from nki.typing import mutable_tensor, tensor

from isa.faults import (
    ConstraintFault,
    KernelFault,
    OutOfBoundsFault,
    UninitializedReadFault,
)

A = np.arange(128 * 32, dtype=np.float32).reshape(128, 32)


@nki.jit
def double(a):
    """Twice a."""
    tile = nl.load(a)
    out = nl.ndarray(a.shape, a.dtype, nl.shared_hbm)
    nl.store(out, nl.add(tile, tile))
    return out


# --- arrays in and out ------------------------------------------------------------------------------


def test_numpy_in_numpy_out():
    result = double(A)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, 2 * A)


@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.uint8, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_dtypes_survive(dtype):
    values = np.arange(64).reshape(32, 2).astype(dtype)

    @nki.jit
    def copy(a):
        out = nl.ndarray(a.shape, a.dtype, nl.shared_hbm)
        nisa.dma_copy(out, a)
        return out

    result = copy(values)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, values)


@pytest.mark.parametrize(("dtype", "advice"), [(np.float64, "float32"), (np.int64, "int32"), (np.complex64, "chip")])
def test_arrays_without_a_dtype_on_the_chip(dtype, advice):
    with pytest.raises(ConstraintFault, match=advice) as caught:
        double(A.astype(dtype))
    assert caught.value.operand == "a"
    assert caught.value.file == __file__


def test_bool_comes_back_as_bool():
    @nki.jit
    def copy(a):
        out = nl.ndarray(a.shape, a.dtype, nl.shared_hbm)
        nisa.dma_copy(out, a)
        return out

    values = np.array([[True, False]])
    assert copy(values).dtype == np.bool_
    np.testing.assert_array_equal(copy(values), values)


def test_containers_of_results_and_arguments():
    @nki.jit
    def kernel(pair, options):
        outs = []
        for x in pair:
            out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
            nisa.dma_copy(out, x)
            outs.append(out)
        return {"list": outs, "tuple": (outs[0], options["n"]), "none": None}

    result = kernel((A, A + 1), {"n": 3})
    assert [type(value).__name__ for value in (result["list"], result["tuple"])] == ["list", "tuple"]
    np.testing.assert_array_equal(result["list"][1], A + 1)
    np.testing.assert_array_equal(result["tuple"][0], A)
    assert result["tuple"][1] == 3
    assert result["none"] is None


def test_arrays_inside_nki_objects():
    @dataclass
    class Config(nl.NKIObject):
        weights: object
        scale: float = 1.0

    config = Config(A, 3.0)

    @nki.jit
    def kernel(config):
        tile = nl.load(config.weights)
        out = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
        nl.store(out, tile)
        return out

    np.testing.assert_array_equal(kernel(config), A)
    assert config.weights is A


def test_a_part_of_a_tensor_is_returned():
    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, a.dtype, nl.shared_hbm)
        nisa.dma_copy(out, a)
        return out[0:64, ::2], out.reshape((32, 128)), out.view(nl.int32)

    part, reshaped, bits = kernel(A)
    np.testing.assert_array_equal(part, A[:64, ::2])
    np.testing.assert_array_equal(reshaped, A.reshape(32, 128))
    np.testing.assert_array_equal(bits, A.view(np.int32))


# --- in place ---------------------------------------------------------------------------------------


@nki.jit
def increment(a):
    tile = nl.load(a)
    nisa.dma_copy(a, nl.add(tile, tile))
    return a


def test_written_arguments_change_in_place():
    values = A.copy()
    result = increment(values)
    assert result is values
    np.testing.assert_array_equal(values, 2 * A)


def test_written_arguments_that_are_not_contiguous():
    values = np.asfortranarray(A)
    increment(values)
    np.testing.assert_array_equal(values, 2 * A)


def test_low_precision_arguments_in_place_with_soft_floats():
    values = A.astype(ml_dtypes.bfloat16)
    kernels.run(increment, values, precise=False)
    np.testing.assert_array_equal(values.astype(np.float32), 2 * A.astype(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.parametrize("make", [np.array, np.asfortranarray])
def test_read_only_arguments(make):
    values = make(A)
    values.flags.writeable = False
    np.testing.assert_array_equal(double(values), 2 * A)
    with pytest.raises(ConstraintFault, match="read-only"):
        increment(values)
    np.testing.assert_array_equal(values, A)


def test_one_array_passed_twice_is_one_tensor():
    seen = []

    @nki.jit
    def kernel(a, b):
        seen.append(a is b)

    kernel(A, A)
    assert seen == [True]


# --- results that cannot be given -------------------------------------------------------------------


@pytest.mark.parametrize("buffer", ["sbuf", "psum", "hbm", "private_hbm"])
def test_only_shared_hbm_is_returned(buffer):
    @nki.jit
    def kernel(a):
        tile = nl.ndarray(a.shape, a.dtype, getattr(nl, buffer), name="mine")
        nisa.dma_copy(tile, a)
        return tile

    if buffer == "psum":
        with pytest.raises(ConstraintFault):  # DMA cannot write it in the first place
            kernel(A)
    else:
        with pytest.raises(ConstraintFault, match=r"(?s)'mine'.*shared_hbm"):
            kernel(A)


def test_output_never_written():
    @nki.jit
    def kernel(a):
        return nl.ndarray(a.shape, a.dtype, nl.shared_hbm, name="forgotten")

    with pytest.raises(UninitializedReadFault, match="'forgotten' was never written"):
        kernel(A)


def test_output_partly_written_and_its_twin():
    @nki.jit
    def kernel(a, rows):
        out = nl.ndarray(a.shape, a.dtype, nl.shared_hbm)
        nisa.dma_copy(out[0:rows], a[0:rows])
        return (a, out)

    with pytest.raises(UninitializedReadFault, match="1024 of 4096 elements"):
        kernel(A, 96)
    np.testing.assert_array_equal(kernel(A, 128)[1], A)
    poisoned = kernels.run(kernel, A, 96, uninitialized="poison").result[1]
    assert np.isnan(poisoned[96:]).all()


# --- how kernels are made and called ----------------------------------------------------------------


def test_decorator_forms_and_wrapping():
    def plain(a, scale: float = 2.0):
        """A docstring."""
        return a

    for made in (nki.jit(plain), nki.jit()(plain), nki.simulate(plain), nki.jit(nki.jit(plain))):
        assert made.__name__ == "plain"
        assert made.__doc__ == "A docstring."
        assert str(inspect.signature(made)) == "(a, scale: float = 2.0)"
        assert "A docstring" in inspect.getsource(made)
        assert made.function is plain
        assert made(A) is A
    kernel = nki.jit(plain)
    assert nki.simulate(kernel) is kernel


@pytest.mark.parametrize("option", ["mode", "debug_kernel", "show_compiler_tb", "experimental_flags", "whatever"])
def test_options_of_other_versions_get_a_note(option):
    with pytest.warns(NkiNote, match=option):
        made = nki.jit(**{option: "simulation"})(lambda a: a)
    assert made(A) is A


def test_platform_target_is_refused():
    with pytest.raises(ConstraintFault, match="NEURON_PLATFORM_TARGET_OVERRIDE"):
        nki.jit(platform_target="trn2")(lambda a: a)


def test_launch_grids():
    @nki.jit
    def kernel():
        return nl.program_ndim(), nl.num_programs(), nl.program_id()

    assert kernel() == (0, 1, 0)
    assert kernel[1]() == (1, 1, 0)
    assert kernel[2]() == (1, 2, 0)
    for grid in (3, (2, 2), "1", True):
        with pytest.raises(ConstraintFault, match="one integer"):
            kernel[grid]


def test_target_is_read_when_called(monkeypatch):
    @nki.jit
    def kernel():
        return int(nisa.get_nc_version())

    versions = []
    for name in ("trn1", "inf2", "gen3", "trn2.48xlarge", "trn3pre"):
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", name)
        versions.append(kernel())
    assert versions == [2, 2, 3, 3, 4]
    assert kernels.run(kernel, target="trn1").result == 2


def test_nested_kernels_run_inline():
    @nki.jit
    def outer(a):
        other = double(a)
        assert isinstance(other, nl.NkiTensor)
        return double(other)

    np.testing.assert_array_equal(outer(A), 4 * A)
    assert kernels.last_run().kernel == "outer"


def test_arrays_of_the_host_do_not_fit_instructions():
    @nki.jit
    def kernel(a):
        tile = nl.load(a)
        nisa.tensor_tensor(tile, tile, A, nl.add)

    with pytest.raises(ConstraintFault, match="shared_constant") as caught:
        kernel(A)
    assert caught.value.operand == "data2"


def test_tensors_do_not_outlive_their_kernel():
    kept = []

    @nki.jit
    def kernel(a):
        kept.append(a)

    kernel(A)
    with pytest.raises(KernelFault, match="ended"):
        kernel(kept[0])


def test_outside_of_kernels():
    with pytest.raises(KernelFault, match="only inside a kernel") as caught:
        nl.ndarray((128, 32), nl.float32)
    assert caught.value.file == __file__


def test_annotations_do_nothing():
    @nki.jit
    def kernel(a: tensor, b: tensor[128, 32], c: mutable_tensor | None = None):
        return a

    assert kernel(A, A) is A


# --- what is left behind ----------------------------------------------------------------------------


def test_last_run_and_callbacks():
    seen = []
    kernels.on_run.append(seen.append)
    try:
        double(A)
    finally:
        kernels.on_run.remove(seen.append)
    (run,) = seen
    assert run is kernels.last_run() is double.last_run is trn_sim.last_run()
    assert run.kernel == "double"
    assert run.inputs == ["a: (128, 32) float32"]
    assert run.error is None
    assert 0 < run.seconds < 60
    assert len(run.program) == 3
    assert [source.file for source in (run.program.source_of(i) for i in range(3))] == [__file__] * 3
    np.testing.assert_array_equal(run.result, 2 * A)


def test_a_faulty_run_is_kept():
    @nki.jit
    def kernel(a):
        tile = nl.load(a)
        return tile[:, 0:33]

    with pytest.raises(OutOfBoundsFault) as caught:
        kernel(A)
    run = kernels.last_run()
    assert run.error is caught.value
    assert len(run.program) == 1
    assert "NeuronCore" in run.error.target


def test_faults_carry_the_line_of_the_kernel():
    def kernel(a):
        tile = nl.load(a)
        nisa.tensor_tensor(tile, tile, tile[:, 0:16], nl.add)  # HERE

    with pytest.raises(ConstraintFault) as caught:
        nki.simulate(kernel)(A)
    lines, first = inspect.getsourcelines(kernel)
    assert caught.value.line == first + next(i for i, text in enumerate(lines) if "# HERE" in text)
    assert (caught.value.file, caught.value.function) == (__file__, "kernel")


# --- schedules --------------------------------------------------------------------------------------


@nki.jit
def named(a):
    out = nl.ndarray(a.shape, a.dtype, nl.shared_hbm)
    for i in range(2):
        tile = nl.ndarray(a.shape, a.dtype)
        nisa.dma_copy(tile, a, name="load")
        nisa.tensor_tensor(tile, tile, tile, nl.add, name=f"add{i}")
        nisa.dma_copy(out, tile, name="store")
    return out


def test_with_schedule_adds_edges():
    np.testing.assert_array_equal(named(A), 2 * A)
    assert named.last_run.program.edges == []
    scheduled = named.with_schedule([("add1", ["add0", "load"]), ("store", "load")])
    np.testing.assert_array_equal(scheduled(A), 2 * A)
    assert sorted(scheduled.last_run.program.edges) == [(2, 0), (4, 1), (4, 3), (5, 3)]


def test_with_schedule_refuses_unknown_and_later_names():
    with pytest.raises(KernelFault, match=r"(?s)'nothing'.*'load', 'add0', 'store', 'add1'"):
        named.with_schedule([("add1", "nothing")])(A)
    with pytest.raises(KernelFault, match="issued after"):
        named.with_schedule([("add0", "add1")])(A)


def test_depends_on():
    @nki.jit
    def kernel(a):
        tile, other = nl.ndarray(a.shape, a.dtype), nl.ndarray(a.shape, a.dtype)
        first = nisa.dma_copy(tile, a)
        second = nisa.dma_copy(other, a)
        assert second.depends_on(first) is second
        with pytest.raises(KernelFault):
            first.depends_on(second)
        with pytest.raises(ConstraintFault):
            second.depends_on("first")

    kernel(A)
    assert kernels.last_run().program.edges == [(1, 0)]


def test_fields_of_dataclasses_default_to_none():
    """As the NKI compiler has it; a default factory and a default keep their meaning."""
    from dataclasses import field

    @dataclass
    class Sizes(nl.NKIObject):
        rows: int
        columns: int
        names: list = field(default_factory=list)
        depth: int = 2

    sizes = Sizes(rows=3)
    assert (sizes.rows, sizes.columns, sizes.names, sizes.depth) == (3, None, [], 2)

    @dataclass
    class More(Sizes):
        more: int

    assert (More(1, 2, more=5).columns, More(1).depth, More(1).more) == (2, 2, None)

    @dataclass(frozen=True)
    class Frozen(nl.NKIObject):
        rows: int
        columns: int

    assert Frozen(1).columns is None
