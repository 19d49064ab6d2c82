"""The generated functions of ``nki.isa``: signatures, conversion of arguments, handles, and names that are missing."""

import inspect

import numpy as np
import pytest

import trn_sim
from trn_sim.nki._support import NkiNote
from trn_sim.nki.isa import _classes, _missing

trn_sim.activate()

import nki.isa as nisa
import nki.language as nl
from nki.isa import constants

from isa.catalogue import INSTRUCTIONS
from isa.faults import ConstraintFault, UnimplementedFault
from isa.target import TRN1
from trn_sim.machine import Core, Options, use_core

NOT_IN_NKI = {"compare_branch", "register_add"}  # what dynamic loops are made of
WRITTEN_BY_HAND = {"nc_transpose", "register_load", "register_move", "register_store"}


def test_every_instruction_has_its_function():
    import nki.collectives as ncc

    for cls in INSTRUCTIONS.values():
        if cls.mnemonic not in NOT_IN_NKI:
            module = ncc if "nki.collectives" in cls.source else nisa
            assert cls.mnemonic in module.__all__, cls.mnemonic
            assert callable(getattr(module, cls.mnemonic))
    assert set(_classes) - NOT_IN_NKI - WRITTEN_BY_HAND - set(ncc.__all__) <= set(nisa._FUNCTIONS)


def test_every_public_name_is_there():
    for name in nisa.__all__:
        assert getattr(nisa, name) is not None


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("dma_copy", "dst, src, priority, oob_mode, dge_mode, engine, name"),
        ("tensor_tensor", "dst, data1, data2, op, engine, name"),
        ("nc_transpose", "dst, data, engine, name"),
        ("iota", "dst, pattern, offset, channel_multiplier, name"),
        ("activation", "dst, op, data, bias, scale, reduce_op, reduce_res, reduce_cmd, name"),
        ("affine_select", "dst, pattern, channel_multiplier, on_true_tile, on_false_value, cmp_op, offset, name"),
        ("tensor_scalar", "dst, data, op0, operand0, reverse0, op1, operand1, reverse1, engine, name"),
        ("tensor_reduce", "dst, op, data, axis, negate, keepdims, name"),
        ("register_move", "dst, src"),
        ("register_alloc", "x"),
    ],
)
def test_signatures(name, signature):
    assert ", ".join(inspect.signature(getattr(nisa, name)).parameters) == signature


def test_defaults_and_documentation():
    parameters = inspect.signature(nisa.dma_copy).parameters
    assert parameters["oob_mode"].default is nisa.oob_mode.error
    assert parameters["dst"].default is inspect.Parameter.empty
    assert "HBM or SBUF" in nisa.dma_copy.__doc__
    assert nisa.tensor_tensor.__name__ == "tensor_tensor"


# --- enumerations -----------------------------------------------------------------------------------


def test_enumerations():
    assert constants.oob_mode is nisa.oob_mode
    assert {member.name: member.value for member in nisa.engine} == {
        "unknown": 0, "tensor": 1, "scalar": 2, "gpsimd": 3, "dma": 4, "vector": 5, "sync": 6,
    }  # fmt: skip
    assert nisa.vector_engine is nisa.engine.vector
    assert nisa.scalar_engine is nisa.engine.scalar
    assert nisa.tensor_engine is nisa.engine.tensor
    assert nisa.gpsimd_engine is nisa.engine.gpsimd
    assert nisa.unknown_engine is nisa.engine.unknown
    assert nisa.matmul_perf_mode.double_row.value == "double_row"
    assert nisa.reduce_cmd.load_reduce == 4
    assert nisa.dma_engine.gpsimd_dma == 2


def test_versions(core, monkeypatch):
    assert nisa.get_nc_version() is nisa.nc_version.gen3
    assert nisa.get_nc_version() >= 3
    assert nisa.get_nc_version() < nisa.nc_version.gen4
    assert nisa.get_nc_sub_version() == 0


def test_version_outside_of_kernels(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    assert nisa.get_nc_version() == nisa.nc_version.gen2
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE")
    assert nisa.get_nc_version() == nisa.nc_version.gen4


def test_handles_and_registers(core):
    tile = nl.ndarray((4, 4), nl.float32)
    first = nisa.memset(tile, 1.0)
    assert isinstance(first, nisa.NkiInstruction)
    register = nisa.register_alloc(3)
    assert isinstance(register, nisa.VirtualRegister)
    assert register.value == 3


def test_members_without_effect(core):
    """The defaults, said aloud."""
    assert nisa.matmul_perf_mode.none.value == "none"
    assert (nisa.dma_engine.dma, nisa.dma_engine.gpsimd_dma) == (1, 2)
    psum = nl.ndarray((4, 4), nl.float32, buffer=nl.psum)
    ones = nl.full((8, 4), 1.0, nl.bfloat16)
    nisa.nc_matmul(psum, ones, ones, perf_mode=nisa.matmul_perf_mode.none)
    assert (psum.numpy() == 8).all()


def test_validation_error_is_the_constraint_fault():
    assert nisa.NkiValidationError is ConstraintFault


# --- arguments --------------------------------------------------------------------------------------


def test_positional_and_keyword(core):
    tile = nl.ndarray((4, 4), nl.float32)
    nisa.memset(tile, 1.0)
    nisa.memset(dst=tile, value=np.float32(2.0), engine=nisa.vector_engine, name="fill")
    assert (tile.numpy() == 2).all()
    assert list(core.program.names.values()) == ["fill"]


def test_lists_and_numpy_numbers_become_constants(core):
    tile = nl.ndarray((2, 6), nl.int32)
    nisa.iota(tile, [[np.int64(10), 2], (1, 3)], offset=np.int32(5))
    np.testing.assert_array_equal(tile.numpy()[0], [5, 6, 7, 15, 16, 17])


@pytest.mark.parametrize(
    ("argument", "word"), [(np.zeros((4, 4), np.float32), "shared_constant"), (1.0, "memset"), ("tile", "nl.ndarray")]
)
def test_what_is_no_tensor(core, argument, word):
    tile = nl.zeros((4, 4), nl.float32)
    with pytest.raises(ConstraintFault, match=word) as caught:
        nisa.tensor_tensor(tile, tile, argument, nl.add)
    assert (caught.value.instruction, caught.value.operand) == ("tensor_tensor", "data2")
    assert caught.value.file == __file__


def test_missing_tensor(core):
    with pytest.raises(ConstraintFault, match="missing"):
        nisa.tensor_copy(nl.zeros((4, 4), nl.float32), None)


def test_enumerations_want_their_members(core):
    tile, source = nl.ndarray((4, 4), nl.float32), nl.shared_constant(np.zeros((4, 4), np.float32))
    with pytest.warns(NkiNote, match=r"none is meant, a number as in NKI 0\.2"):
        nisa.dma_copy(tile, source, dge_mode=3)  # nki-library does
    with pytest.raises(ConstraintFault, match="members"):
        nisa.dma_copy(tile, source, dge_mode=4)
    nisa.dma_copy(tile, source, dge_mode=nisa.dge_mode.none)
    nisa.dma_copy(tile, source, oob_mode="skip")  # a member by its name
    with pytest.raises(ConstraintFault, match="members"):
        nisa.dma_copy(tile, source, oob_mode="sikp")


def test_constants_are_not_tensors(core):
    tile = nl.zeros((4, 4), nl.int32)
    with pytest.raises(ConstraintFault, match="compile-time"):
        nisa.iota(tile, [[1, 4]], channel_multiplier=tile)
    with pytest.raises(ConstraintFault, match="numbers belong"):
        nisa.iota(tile, [["1", 4]])


def test_arguments_of_other_versions(core):
    tile = nl.zeros((4, 4), nl.float32)
    with pytest.warns(NkiNote, match="dtype"):
        nisa.tensor_copy(dst=tile, src=tile, dtype=nl.float32)
    with pytest.raises(ConstraintFault, match="mask"):
        nisa.tensor_copy(dst=tile, src=tile, mask=None)
    hbm = nl.ndarray((4, 4), nl.float32, buffer=nl.private_hbm)
    for call in (
        lambda: nl.add(tile, tile, mask=True),
        lambda: nl.load(hbm, mask=True),
        lambda: nl.store(hbm, tile, mask=True),
    ):
        with pytest.raises(ConstraintFault, match="slice the operands") as caught:
            call()
        assert caught.value.file == __file__
    with pytest.raises(TypeError, match=r"nl\.load\(\) got an unexpected keyword argument 'colour'"):
        nl.load(hbm, colour=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        nisa.tensor_copy(dst=tile, src=tile, colour=1)
    with pytest.raises(TypeError, match="missing"):
        nisa.tensor_copy(tile)


def test_sequences_of_tensors(core):
    a, b = nl.ones((4, 4), nl.float32), nl.full((4, 4), 2.0, nl.float32)
    out = nl.ndarray((4, 4), nl.float32)
    nisa.dma_compute(out, [a, b], nl.add)
    assert (out.numpy() == 3).all()
    with pytest.raises(ConstraintFault, match="list of tensors"):
        nisa.dma_compute(out, 3, nl.add)
    with pytest.raises(ConstraintFault) as caught:
        nisa.dma_compute(out, [a, 3.0], nl.add)
    assert caught.value.operand == "srcs[1]"


# --- nc_transpose -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "asked", "engine"),
    [("sbuf", "psum", "unknown", "tensor"), ("sbuf", "sbuf", "unknown", "vector"),
     ("psum", "sbuf", "unknown", "vector"), ("sbuf", "psum", "vector", "vector"),
     ("psum", "psum", "unknown", "vector"), ("sbuf", "psum", "tensor", "tensor")],
)  # fmt: skip
def test_transpose_picks_its_engine(core, source, target, asked, engine):
    values = np.arange(32 * 16, dtype=np.float32).reshape(32, 16)
    data = nl.ndarray((32, 16), nl.float32, getattr(nl, source))
    nisa.tensor_copy(data, nl.load(nl.shared_constant(values)))
    turned = nl.ndarray((16, 32), nl.float32, getattr(nl, target))
    nisa.nc_transpose(turned, data, engine=getattr(nisa.engine, asked))
    np.testing.assert_array_equal(turned.numpy(), values.T)
    template = core.program.templates[core.program.rows()[-1][0]]
    assert template.engine.name == engine


# --- what is not there ------------------------------------------------------------------------------


def test_unbuilt_functions_say_so(core):
    unbuilt = _missing("sendrecv")
    assert unbuilt.__name__ == "sendrecv"
    with pytest.raises(UnimplementedFault, match="not in trn-sim yet") as caught:
        unbuilt(1, 2, name="x")
    assert caught.value.instruction == "sendrecv"
    for name in nisa._FUNCTIONS:
        if name not in _classes:
            with pytest.raises(UnimplementedFault, match=name):
                getattr(nisa, name)()


def test_old_names_are_explained():
    assert not hasattr(nisa, "tensor_copy_dynamic_src")
    with pytest.raises(AttributeError, match="scalar_offset"):
        nisa.tensor_copy_dynamic_src  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        nisa.nothing  # noqa: B018


def test_instructions_of_later_generations():
    with use_core(Core(Options(target=TRN1))):
        tile = nl.ndarray((4, 4), nl.float32)
        with pytest.raises(ConstraintFault, match="NeuronCore-v4"):
            nisa.rand2(tile, 0.0, 1.0)


def test_compiler_module():
    import nki.compiler

    assert nki.compiler.skip_middle_end_transformations(test_versions) is test_versions
    with nki.compiler.no_reorder():
        pass
    assert not hasattr(nki.compiler, "frontend")
    with pytest.raises(UnimplementedFault, match="no NKI compiler"):
        nki.compiler.frontend  # noqa: B018
