"""Sequencer instructions: registers, and the compare and branch of dynamic loops.

A register is one signed 32-bit word.  NKI's registers are virtual: the compiler keeps a copy on every engine's
sequencer that needs one, and all sequencers of a loop count and branch.  Here an instruction names one sequencer with
``engine`` (Sync unless said otherwise); a front end that wants the cost on every engine issues it once for each.

A dynamic loop costs one ``register_add`` and one ``compare_branch`` an iteration.  Where control goes is the front
end's business: :meth:`CompareBranch.taken` tells it.  Loops, branches and addition are not in the NKI documentation as
instructions; their existence follows from ``nl.fori_loop`` and ``nl.while_loop``.  Registers holding float32 are
left out: values are integers, and a load keeps the bits of other dtypes.

Sources: NKI documentation (0.6), register_alloc and the functions beside it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from isa.alu import AluOp
from isa.engine import Engine
from isa.instruction import Dst, Imm, Instruction, Machine, Src, SrcDst, instruction
from isa.operands import AccessPattern, Space
from isa.target import Target
from isa.work import Work, WorkFlag, WorkKind

__all__ = ["CompareBranch", "RegisterAdd", "RegisterLoad", "RegisterMove", "RegisterStore"]

REGISTER = (Space.REGISTER,)
SEQUENCERS = (Engine.sync, Engine.tensor, Engine.vector, Engine.scalar, Engine.gpsimd)
_LOADABLE = (Space.HBM, Space.SBUF)
_COMPARE = {
    "equal": int.__eq__,
    "not_equal": int.__ne__,
    "less": int.__lt__,
    "less_equal": int.__le__,
    "greater": int.__gt__,
    "greater_equal": int.__ge__,
}


def _value(machine: Machine, source: int | AccessPattern) -> int:
    return machine.read_register(source) if isinstance(source, AccessPattern) else int(source)


def _check_immediate(ins: Instruction, name: str, target: Target) -> None:
    """Numbers are 32-bit integers; -1 may also be written 0xFFFFFFFF."""
    value = getattr(ins, name)
    if isinstance(value, AccessPattern):
        return
    if int(value) != value or not -(2**31) <= value < 2**32:
        raise ins.refuse(name, f"is {value}", limit="32-bit integers", target=target)


def _check_sequencer(ins: Instruction, engine: Engine, target: Target) -> None:
    if engine not in SEQUENCERS:
        raise ins.refuse(
            None,
            f"engine {engine.name} has no sequencer",
            limit=", ".join(one.name for one in SEQUENCERS),
            target=target,
        )


def _check_word(ins: Instruction, name: str, target: Target) -> None:
    tensor: AccessPattern = getattr(ins, name)
    if tensor.partitions * tensor.elements != 1:
        raise ins.refuse(name, "has more than one element", limit="exactly one element", target=target)
    if tensor.dtype.itemsize > 4:
        raise ins.refuse(name, "does not fit into a register", limit="at most 32 bits", target=target)


class _Control(Instruction):
    """What the instructions of this module share: no data path, work of the class CONTROL."""

    __slots__ = ()
    control: ClassVar[bool] = True

    def work(self, target: Target) -> Work:
        flags = WorkFlag.NONE
        for _, tensor in self.tensors():
            if tensor.space is Space.HBM:
                flags |= WorkFlag.HBM_READ if isinstance(self, RegisterLoad) else WorkFlag.HBM_WRITE
        return Work(kind=WorkKind.CONTROL, flags=int(flags))


@instruction(opcode=112, mnemonic="register_move", engines=SEQUENCERS, source="NKI 0.6 nki.isa.register_move")
class RegisterMove(_Control):
    """Register dst = src, an integer or another register; wraps to 32 bits."""

    dst: AccessPattern = Dst(spaces=REGISTER)
    src: int | AccessPattern = Src(spaces=REGISTER, scalar=True)

    def constrain_address(self, target: Target) -> None:
        _check_immediate(self, "src", target)

    def run(self, machine: Machine) -> None:
        machine.write_register(self.dst, _value(machine, self.src))


@instruction(opcode=113, mnemonic="register_load", engines=SEQUENCERS, source="NKI 0.6 nki.isa.register_load")
class RegisterLoad(_Control):
    """Register dst = the one element of src, in HBM or SBUF.

    Integers keep their value (narrow ones are extended by their sign or by zeros); other dtypes keep their bits.
    """

    dst: AccessPattern = Dst(spaces=REGISTER)
    src: AccessPattern = Src(spaces=_LOADABLE)

    def constrain(self, target: Target) -> None:
        _check_word(self, "src", target)

    def run(self, machine: Machine) -> None:
        word = machine.view(self.src).reshape(1)
        if self.src.dtype.kind not in "iu":
            word = word.view(f"u{word.dtype.itemsize}")
        machine.write_register(self.dst, int(word[0]))


@instruction(opcode=114, mnemonic="register_store", engines=SEQUENCERS, source="NKI 0.6 nki.isa.register_store")
class RegisterStore(_Control):
    """The one element of dst, in HBM or SBUF, = the low bits of register src."""

    dst: AccessPattern = Dst(spaces=_LOADABLE)
    src: AccessPattern = Src(spaces=REGISTER)

    def constrain(self, target: Target) -> None:
        _check_word(self, "dst", target)

    def run(self, machine: Machine) -> None:
        size = self.dst.dtype.itemsize
        low = machine.read_register(self.src) & ((1 << 8 * size) - 1)
        bits = np.array([low], f"u{size}").view(self.dst.dtype.storage)
        view = machine.view(self.dst, write=True)
        view[...] = bits.reshape(view.shape)


@instruction(opcode=115, mnemonic="register_add", engines=SEQUENCERS, source="NKI 0.6 nl.fori_loop", status="guessed")
class RegisterAdd(_Control):
    """Register dst += value, an integer or another register; wraps to 32 bits."""

    dst: AccessPattern = SrcDst(spaces=REGISTER)
    value: int | AccessPattern = Src(spaces=REGISTER, scalar=True)
    engine: Engine = Imm(Engine.sync)

    def select_engine(self, target: Target) -> Engine:
        return self.engine

    def constrain(self, target: Target) -> None:
        _check_sequencer(self, self.engine, target)

    def constrain_address(self, target: Target) -> None:
        _check_immediate(self, "value", target)

    def run(self, machine: Machine) -> None:
        machine.write_register(self.dst, machine.read_register(self.dst) + _value(machine, self.value))


@instruction(
    opcode=116,
    mnemonic="compare_branch",
    engines=SEQUENCERS,
    source="NKI 0.6 nl.fori_loop, nl.while_loop",
    status="guessed",
)
class CompareBranch(_Control):
    """Branch where ``left op right`` holds, e.g. at the end of a loop body; has no effect on data.

    ``for i`` loops compare the counter with the bound (``less``), ``while`` loops the condition with 0 (``not_equal``).
    """

    left: AccessPattern = Src(spaces=REGISTER)
    op: AluOp = Imm()
    right: int | AccessPattern = Src(spaces=REGISTER, scalar=True, default=0)
    engine: Engine = Imm(default=Engine.sync)

    def select_engine(self, target: Target) -> Engine:
        return self.engine

    def constrain(self, target: Target) -> None:
        _check_sequencer(self, self.engine, target)
        if self.op.name not in _COMPARE:
            raise self.refuse(None, f"operator {self.op} does not compare", limit=", ".join(_COMPARE), target=target)

    def constrain_address(self, target: Target) -> None:
        _check_immediate(self, "right", target)

    def taken(self, machine: Machine) -> bool:
        """Whether control goes to the target of the branch; registers compare as signed integers."""
        return bool(_COMPARE[self.op.name](machine.read_register(self.left), _value(machine, self.right)))

    def run(self, machine: Machine) -> None:
        """Nothing: the front end asks :meth:`taken`."""
