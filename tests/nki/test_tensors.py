"""Making and moving tensors: allocation rules, fills, loads and stores, broadcasts, constants, random numbers."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

import trn_sim
from trn_sim.nki._support import NkiNote

trn_sim.activate()

import nki
import nki.dtype
import nki.isa as nisa
import nki.language as nl

from isa.faults import CapacityFault, ConstraintFault, Fault, UninitializedReadFault

A = np.arange(64 * 24, dtype=np.float32).reshape(64, 24)


def mnemonics(core, start=0):
    program = core.program
    return [program.templates[row[0]].mnemonic for row in program.rows()[start:]]


# --- allocation -------------------------------------------------------------------------------------


def test_regions_are_compared_and_tested():
    assert nl.hbm is nl.private_hbm
    assert nl.sbuf != nl.psum
    assert nl.sbuf in (nl.sbuf, nl.psum)
    assert [nl.is_sbuf(r) for r in (nl.sbuf, nl.psum, nl.hbm)] == [True, False, False]
    assert [nl.is_psum(r) for r in (nl.sbuf, nl.psum, nl.hbm)] == [False, True, False]
    assert [nl.is_on_chip(r) for r in (nl.sbuf, nl.psum, nl.hbm)] == [True, True, False]
    assert [nl.is_hbm(r) for r in (nl.sbuf, nl.shared_hbm, nl.hbm)] == [False, True, True]
    assert list(nl.MemoryRegion.__members__) == ["sbuf", "psum", "private_hbm", "shared_hbm"]


@pytest.mark.parametrize("buffer", nl.MemoryRegion)
def test_every_region_allocates(core, buffer):
    tensor = nl.ndarray((64, 24), nl.float32, buffer, name="t")
    assert (tensor.buffer, tensor.shape, tensor.name) == (buffer, (64, 24), "t")


def test_strings_are_no_regions(core):
    with pytest.raises(ConstraintFault, match=r"NKI 0\.2"):
        nl.ndarray((64, 24), nl.float32, "sbuf")


def test_on_chip_tensors_have_two_dimensions(core):
    with pytest.raises(ConstraintFault, match=r"\(64, 1\)"):
        nl.ndarray((64,), nl.float32)
    assert nl.ndarray((64,), nl.float32, nl.hbm).shape == (64,)
    with pytest.raises(ConstraintFault, match="integers"):
        nl.ndarray((64, 2.5), nl.float32)
    with pytest.raises(ConstraintFault, match="128 partitions"):
        nl.ndarray((129, 4), nl.float32)


@pytest.mark.parametrize("dtype", ["float32", nl.float32, np.float32, np.dtype("float32")])
def test_dtypes_by_any_name(core, dtype):
    assert nl.ndarray((4, 4), dtype).dtype == nl.float32


def test_dtypes_that_do_not_exist(core):
    for dtype in ("float64", np.float64, "float31", None):
        with pytest.raises(ConstraintFault, match="does not exist"):
            nl.ndarray((4, 4), dtype)


def test_dtypes_compare_as_kernels_do():
    assert nl.bfloat16 == "bfloat16"
    assert str(nl.float32) == "float32"
    assert {nl.int32: 1}[nl.int32] == 1
    assert np.zeros(3, dtype=np.float32).dtype == nl.float32
    assert nki.dtype.bfloat16 is nl.bfloat16
    assert nl.float32 != nl.int32


def test_addresses_in_bytes(core):
    first = nl.ndarray((32, 16), nl.float32, address=(32, 4096))
    second = nl.ndarray((32, 16), nl.float32, address=(32, 4096))  # the same bytes, on purpose
    nisa.memset(first, 3.0)
    assert (second.numpy() == 3).all()
    operand = first.operand()
    assert (operand.start, operand.offset) == (32, 4096)
    with pytest.raises(ConstraintFault, match="SBUF and PSUM"):
        nl.ndarray((4, 4), nl.float32, nl.hbm, address=(0, 0))


def test_capacity(core):
    with pytest.raises(CapacityFault):
        nl.ndarray((128, core.target.sbuf_bytes), nl.float32)


def test_fresh_tensors_are_unwritten(core):
    with pytest.raises(UninitializedReadFault):
        nl.copy(nl.ndarray((4, 4), nl.float32))


@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum, nl.shared_hbm])
@pytest.mark.parametrize("dtype", [nl.float32, nl.bfloat16, nl.int32, nl.uint8])
def test_fills(core, buffer, dtype):
    for tensor, value in (
        (nl.zeros((64, 24), dtype, buffer), 0),
        (nl.ones((64, 24), dtype, buffer), 1),
        (nl.full((64, 24), 3.0, dtype, buffer), 3),
        (nl.zeros_like(nl.ndarray((64, 24), dtype, buffer)), 0),
    ):
        assert (tensor.buffer, tensor.dtype, tensor.shape) == (buffer, dtype, (64, 24))
        assert (tensor.numpy().astype(np.float32) == value).all()


def test_fill_of_a_large_hbm_tensor_with_a_rest(core):
    tensor = nl.full((3, 1000), 7, nl.int32, nl.hbm)
    assert (tensor.numpy() == 7).all()
    assert mnemonics(core) == ["memset", "dma_copy", "dma_copy"]


def test_empty_like(core):
    like = nl.empty_like(nl.ndarray((64, 24), nl.int32, nl.psum), dtype=nl.float32)
    assert (like.buffer, like.dtype, like.shape) == (nl.psum, nl.float32, (64, 24))
    assert nl.empty_like(like, buffer=nl.sbuf).buffer == nl.sbuf


def test_tile_size(core, core_v4, monkeypatch):
    sizes = nl.tile_size
    assert (sizes.pmax, sizes.psum_bank_fmax, sizes.psum_fmax, sizes.psum_bank_fmax_bytes) == (128, 512, 512, 2048)
    assert (sizes.gemm_stationary_fmax, sizes.gemm_moving_fmax, sizes.bn_stats_fmax) == (128, 512, 512)
    assert sizes.sbuf_fmax_bytes == 256 * 1024  # the running core is a trn3
    assert sizes.total_available_sbuf_size == sizes.sbuf_fmax * 4 == sizes.sbuf_fmax_bytes
    assert sizes.sbuf_size_bytes == 32 * 2**20
    assert sizes.psum_num_banks == 8
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true")
    assert sizes.psum_num_banks == 7


def test_tile_size_outside_of_kernels(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    assert nl.tile_size.sbuf_fmax_bytes == 192 * 1024


# --- moving -----------------------------------------------------------------------------------------


def test_load_and_store(core):
    source = nl.shared_constant(A)
    tile = nl.load(source[0:32])
    assert (tile.shape, tile.dtype, tile.buffer) == ((32, 24), nl.float32, nl.sbuf)
    np.testing.assert_array_equal(tile.numpy(), A[:32])
    half = nl.load(source, dtype=nl.bfloat16)
    np.testing.assert_array_equal(half.numpy(), A.astype(ml_dtypes.bfloat16))
    out = nl.ndarray((64, 24), nl.float32, nl.shared_hbm)
    nl.store(out[32:], tile)
    nl.store(dst=out[:32], value=tile)
    np.testing.assert_array_equal(out.numpy(), np.concatenate([A[:32], A[:32]]))
    assert mnemonics(core) == ["dma_copy"] * 4


def test_store_from_psum_is_refused(core):
    out = nl.ndarray((64, 24), nl.float32, nl.shared_hbm)
    with pytest.raises(ConstraintFault) as caught:
        nl.store(out, nl.zeros((64, 24), nl.float32, nl.psum))
    assert caught.value.operand == "src"


def test_load_transpose2d(core):
    source = nl.shared_constant(A.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(nl.load_transpose2d(source).numpy(), A.astype(ml_dtypes.bfloat16).T)
    assert nl.load_transpose2d(source, dtype=nl.float32).dtype == nl.float32
    with pytest.raises(ConstraintFault, match="two dimensions"):
        nl.load_transpose2d(nl.shared_constant(A.reshape(8, 8, 24)))


def test_expand_dims(core):
    assert nl.expand_dims(nl.ndarray((64, 24), nl.float32), 1).shape == (64, 1, 24)


def test_broadcast_to(core):
    tile = nl.load(nl.shared_constant(A))
    assert nl.broadcast_to(tile, (64, 24)) is tile
    column = nl.broadcast_to(tile[:, 3:4], (64, 7))
    np.testing.assert_array_equal(column.numpy(), np.broadcast_to(A[:, 3:4], (64, 7)))
    before = len(core.program)
    row = nl.broadcast_to(tile[5:6, :], (100, 24))
    assert mnemonics(core, before) == ["dma_copy"]
    np.testing.assert_array_equal(row.numpy(), np.broadcast_to(A[5], (100, 24)))
    both = nl.broadcast_to(tile[5:6, 2:3], (128, 6), dtype=nl.bfloat16)
    assert both.dtype == nl.bfloat16
    assert (both.numpy().astype(np.float32) == A[5, 2]).all()
    with pytest.raises(ConstraintFault, match="same rank"):
        nl.broadcast_to(tile, (64, 24, 2))
    with pytest.raises(ConstraintFault, match="broadcast_to"):
        nl.broadcast_to(tile, (128, 24))


@pytest.mark.parametrize(
    ("dtype", "width", "where", "issued"),
    [
        (np.float32, 512, nl.psum, ["memset", "nc_matmul"]),
        (np.float32, 513, nl.sbuf, ["memset", *["nc_matmul", "activation"] * 2]),
        (np.float16, 512, nl.sbuf, ["memset", "nc_matmul", "activation"]),
        (np.int32, 512, nl.sbuf, ["dma_copy"]),
    ],
)
def test_broadcast_over_partitions(core, dtype, width, where, issued):
    row = np.random.default_rng(width).normal(scale=1e4, size=(1, width)).astype(dtype)
    if dtype != np.int32:
        row[0, :3] = np.inf, -np.inf, np.nan
    tile = nl.load(nl.shared_constant(row))
    before = len(core.program)
    spread = nl.broadcast_to(tile, (100, width))
    assert mnemonics(core, before) == issued
    assert spread.buffer is where
    np.testing.assert_array_equal(spread.numpy(), np.broadcast_to(row, (100, width)))


def test_broadcast_of_a_row_of_matrices(core):
    values = np.random.default_rng(0).normal(size=(1, 3, 300)).astype(np.float32)
    tile = nl.load(nl.shared_constant(values))
    np.testing.assert_array_equal(nl.broadcast_to(tile, (128, 3, 300)).numpy(), np.broadcast_to(values, (128, 3, 300)))
    flipped = tile.permute((0, 2, 1))
    np.testing.assert_array_equal(
        nl.broadcast_to(flipped, (128, 300, 3)).numpy(), np.broadcast_to(values.transpose(0, 2, 1), (128, 300, 3))
    )


def test_broadcast_to_keeps_every_bit(core):
    integers = np.array([[2**31 - 1, -(2**31) + 1, 16777217]], np.int32)
    np.testing.assert_array_equal(
        nl.broadcast_to(nl.load(nl.shared_constant(integers)), (37, 3)).numpy(), np.broadcast_to(integers, (37, 3))
    )


def test_broadcast_to_from_psum(core):
    tile = nl.zeros((1, 8), nl.float32, nl.psum)
    assert nl.broadcast_to(tile, (16, 8)).numpy().sum() == 0


def test_gather_flattened(core):
    data = np.arange(16 * 32, dtype=np.float32).reshape(16, 32)
    indices = np.random.default_rng(0).integers(0, 32, (16, 8)).astype(np.uint32)
    picked = nl.gather_flattened(nl.load(nl.shared_constant(data)), nl.load(nl.shared_constant(indices)))
    np.testing.assert_array_equal(picked.numpy(), np.take_along_axis(data, indices.astype(int), axis=1))
    with pytest.raises(ConstraintFault, match="axis"):
        nl.gather_flattened(picked, picked, axis=1)


# --- constants and random numbers -------------------------------------------------------------------


def test_shared_constant(core, tmp_path):
    values = A.copy()
    constant = nl.shared_constant(values)
    values[...] = 0
    np.testing.assert_array_equal(constant.numpy(), A)
    assert constant.buffer == nl.shared_hbm
    np.save(tmp_path / "c.npy", A)
    np.testing.assert_array_equal(nl.shared_constant(str(tmp_path / "c.npy")).numpy(), A)
    with pytest.raises(ConstraintFault, match="float64"):
        nl.shared_constant(A.astype(np.float64))


@pytest.mark.parametrize("n", [1, 32, 128])
def test_identity(core, n):
    np.testing.assert_array_equal(nl.shared_identity_matrix(n).numpy(), np.eye(n, dtype=np.uint8))
    assert nl.shared_identity_matrix(n, dtype=nl.bfloat16).dtype == nl.bfloat16
    mine = nl.ndarray((n, n), nl.float32)
    assert nl.shared_identity_matrix(n, dst=mine) is mine
    np.testing.assert_array_equal(mine.numpy(), np.eye(n))


@pytest.mark.parametrize("which", ["core", "core_v4"])
def test_rand_is_uniform_and_repeats_with_the_seed(request, which):
    request.getfixturevalue(which)
    seed = nl.full((1, 1), 42, nl.int32)
    nl.random_seed(seed)
    first = nl.rand((128, 256), nl.float32).numpy()
    second = nl.rand((128, 256), nl.float32).numpy()
    nl.random_seed(seed)
    again = nl.rand((128, 256), nl.float32).numpy()
    np.testing.assert_array_equal(first, again)
    assert (first != second).any()
    assert 0 <= first.min() <= first.max() < 1
    assert abs(first.mean() - 0.5) < 0.01


def test_rand_in_hbm_and_number_as_seed(core):
    with pytest.warns(NkiNote, match="random_seed"):
        nl.random_seed(7)
    assert nl.rand((64, 24), nl.float32, nl.shared_hbm).buffer == nl.shared_hbm


def test_device_print(core, capsys):
    nl.device_print("tile:", nl.full((1, 2), 2.5, nl.float32))
    assert capsys.readouterr().out == "tile: [[2.5 2.5]]\n"


# --- the package ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["arange", "mgrid", "par_dim", "nc", "spmd_dim", "loop_reduce", "static_cast", "fp32"])
def test_old_names_are_explained(name):
    assert not hasattr(nl, name)
    with pytest.raises(AttributeError) as caught:
        getattr(nl, name)
    assert isinstance(caught.value, Fault)
    assert "neuronxcc.nki" in str(caught.value)
    assert caught.value.file == __file__


def test_unknown_names():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        nl.nothing  # noqa: B018


def test_every_public_name_is_there():
    for name in nl.__all__:
        assert getattr(nl, name) is not None
    assert len(set(nl.__all__)) == len(nl.__all__) >= 134


def test_nki_object_makes_its_own_initializer():
    class Config(nl.NKIObject):
        rows: int
        scale: float = 2.0

        def __post_init__(self):
            self.double = self.scale * 2

    config = Config(3)
    assert (config.rows, config.scale, config.double) == (3, 2.0, 4.0)
    assert Config(scale=1.0).rows is None
    with pytest.raises(TypeError):
        Config(1, 2, 3)
    with pytest.raises(TypeError):
        Config(1, rows=2)


def test_dataclasses_take_attributes_without_annotation():
    @dataclass
    class Section(nl.NKIObject):
        size: int
        index = None
        names = ("a", "b")

        def double(self):
            return self.size * 2

    section = Section(4, index=3)
    assert (section.size, section.index, section.names, section.double()) == (4, 3, ("a", "b"), 8)
    assert Section(4) == Section(4, None)
