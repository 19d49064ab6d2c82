"""Loops, registers, and what they leave in the instruction stream."""

import numpy as np
import pytest

import trn_sim
from trn_sim.nki._support import NkiNote

trn_sim.activate()

import nki.isa as nisa
import nki.language as nl

from isa.faults import ConstraintFault, KernelFault


def mnemonics(core):
    return [core.program.templates[row[0]].mnemonic for row in core.program.rows()]


@pytest.mark.parametrize("function", [nl.affine_range, nl.sequential_range, nl.static_range])
def test_plain_ranges(core, function):
    assert list(function(4)) == [0, 1, 2, 3]
    assert list(function(1, 10, 3)) == [1, 4, 7]
    with pytest.warns(NkiNote, match="multi_buffer"):
        assert list(function(2, multi_buffer=2)) == [0, 1]
    with pytest.raises(ConstraintFault, match="dynamic_range"):
        function(nisa.register_alloc(3))
    assert "register_add" not in mnemonics(core)


def test_dynamic_range_counts_in_a_register(core):
    seen = [i.value for i in nl.dynamic_range(2, 10, 3)]
    assert seen == [2, 5, 8]
    assert mnemonics(core) == ["register_move", *["compare_branch", "register_add"] * 3, "compare_branch"]


def test_dynamic_range_with_registers_as_bounds(core):
    start, stop = nisa.register_alloc(1), nisa.register_alloc(4)
    assert [i.value for i in nl.dynamic_range(start, stop)] == [1, 2, 3]
    assert [i.value for i in nl.dynamic_range(stop)] == [0, 1, 2, 3]
    assert [i.value for i in nl.dynamic_range(0)] == []


@pytest.mark.parametrize("step", [0, -1, 1.5])
def test_step_is_a_positive_constant(core, step):
    with pytest.raises(AssertionError, match="positive"):
        nl.dynamic_range(0, 4, step)
    with pytest.raises(AssertionError, match="positive"):
        nl.dynamic_range(0, 4, nisa.register_alloc(1))


def test_loop_variables_are_frozen(core):
    for i in nl.dynamic_range(1):
        with pytest.raises(AssertionError, match="loop variables"):
            nisa.register_move(i, 3)
        with pytest.raises(AssertionError, match="loop variables"):
            nisa.register_load(i, nl.zeros((1, 1), nl.int32))
        mine = nisa.register_alloc()
        nisa.register_move(mine, i)
        assert mine.value == 0


def test_fori_loop_moves_tiles(core):
    source = nl.shared_constant(np.arange(4 * 8 * 6, dtype=np.float32).reshape(4, 8, 6))
    out = nl.ndarray((4, 8, 6), nl.float32, nl.shared_hbm)

    def body(i):
        tile = nl.ndarray((8, 6), nl.float32)
        nisa.dma_copy(tile, source[i])
        nisa.dma_copy(out.select(0, i), tile)

    nl.fori_loop(0, 4, body)
    np.testing.assert_array_equal(out.numpy(), source.numpy())


def test_while_register(core):
    register = nisa.register_alloc(3)
    tile = nl.full((1, 1), 3, nl.int32)
    rounds = 0
    while register:
        nisa.tensor_scalar(tile, tile, nl.subtract, 1)
        nisa.register_load(register, tile)
        rounds += 1
    assert rounds == 3
    assert mnemonics(core).count("compare_branch") == 4


def test_while_loop(core):
    values = iter([2, 1, 0])
    rounds = []

    def body(register):
        rounds.append(register.value)
        nisa.register_move(register, next(values))
        return register

    nl.while_loop(nisa.register_alloc(3), body)
    assert rounds == [3, 2, 1]
    nl.while_loop(0, body)
    assert rounds == [3, 2, 1]
    with pytest.raises(KernelFault, match="returned"):
        nl.while_loop(1, lambda register: None)


def test_no_reorder_refuses_dynamic_loops_only(core):
    with nl.no_reorder():
        assert list(nl.static_range(2)) == [0, 1]
        with pytest.raises(KernelFault, match="no_reorder"):
            nl.dynamic_range(3)
        with pytest.raises(KernelFault, match="no_reorder"):
            nl.while_loop(1, lambda r: r)
    for _ in nl.dynamic_range(1):
        with nl.no_reorder():
            nl.zeros((1, 1), nl.int32)


# --- registers --------------------------------------------------------------------------------------


def test_register_instructions(core):
    register = nisa.register_alloc(-5)
    assert register.value == -5
    assert repr(register).endswith(" = -5>")
    tile = nl.zeros((1, 4), nl.int32)
    nisa.register_store(tile[0, 2], register)
    np.testing.assert_array_equal(tile.numpy(), [[0, 0, -5, 0]])
    other = nisa.register_alloc()
    nisa.register_load(other, tile[0, 2])
    assert other.value == -5
    nisa.register_move(other, 2**31)  # wraps
    assert other.value == -(2**31)
    assert mnemonics(core)[-1] == "register_move"


def test_register_load_takes_one_element(core):
    with pytest.raises(ConstraintFault, match="one element"):
        nisa.register_load(nisa.register_alloc(), nl.zeros((1, 4), nl.int32))


def test_iota_from_a_register(core):
    tile = nl.ndarray((2, 3), nl.int32)
    nisa.iota(tile, [[1, 3]], offset=nisa.register_alloc(10), channel_multiplier=3)
    np.testing.assert_array_equal(tile.numpy(), [[10, 11, 12], [13, 14, 15]])


@pytest.mark.parametrize(
    "use",
    [lambda r: r + 1, lambda r: 128 * r, lambda r: r // 2, lambda r: -r, lambda r: range(r), int, float,
     lambda r: [0, 1][r]],
)  # fmt: skip
def test_no_arithmetic_on_registers(core, use):
    with pytest.raises(KernelFault, match="scalar_offset"):
        use(nisa.register_alloc(1))


def test_comparisons_work_with_a_note(core):
    register = nisa.register_alloc(3)
    with pytest.warns(NkiNote, match="compared"):
        assert register == 3
    with pytest.warns(NkiNote, match="compared"):
        assert register < nisa.register_alloc(4)
    with pytest.warns(NkiNote):
        assert (register > 1, register >= 4, register <= 3) == (True, False, True)
    assert register == register
    assert register != "3"


def test_register_arithmetic_in_an_index(core):
    tile = nl.zeros((8, 16), nl.int32)
    with pytest.raises(ConstraintFault, match=r"nl\.ds"):
        tile[:, nisa.register_alloc(1) :]
