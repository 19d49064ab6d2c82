"""Element-wise functions of ``nki.language``: a new SBUF tile from one or two tiles.

The names are operators of instructions as well (``op=nl.add``).  Which instructions a call issues:

- two tiles: ``tensor_tensor``; a tile and a number: ``tensor_scalar`` (Vector Engine);
- functions of the Scalar Engine: ``activation``.

What takes several instructions is in :mod:`trn_sim.nki.language.composites`.

The result has the dtype ``dtype``, by default that of the input; of two different inputs, the one that holds both
(two 16-bit floats of different kinds: float32).
"""

from __future__ import annotations

from typing import Any

from isa import dtypes
from isa.alu import ALU_OPS
from isa.dtypes import DType
from isa.engine import Engine
from isa.faults import ConstraintFault
from trn_sim.nki import isa as nisa
from trn_sim.nki._support import located, note
from trn_sim.nki.language.tensors import broadcast_to, ndarray
from trn_sim.nki.operator import Op, constant, operator
from trn_sim.nki.tensor import NkiTensor

__all__ = [
    "abs",
    "abs_max",
    "abs_min",
    "add",
    "arctan",
    "average",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bypass",
    "equal",
    "erf",
    "erf_dx",
    "exp",
    "gelu",
    "gelu_apprx_sigmoid",
    "gelu_apprx_sigmoid_dx",
    "gelu_apprx_tanh",
    "gelu_dx",
    "greater",
    "greater_equal",
    "invert",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mish",
    "multiply",
    "negative",
    "not_equal",
    "power",
    "prelu",
    "reciprocal",
    "relu",
    "right_shift",
    "rsqrt",
    "sigmoid",
    "sign",
    "silu",
    "silu_dx",
    "softplus",
    "sqrt",
    "square",
    "subtract",
    "tanh",
]

FLOAT32 = dtypes.float32
INT32 = dtypes.int32


# --- how calls become instructions --------------------------------------------------------------------


def promote(a: DType, b: DType) -> DType:
    """The dtype of the result of two inputs; see above."""
    if a == b:
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.itemsize != b.itemsize:
        return a if a.itemsize > b.itemsize else b
    if a.is_float:
        return FLOAT32 if a.itemsize >= 2 else dtypes.bfloat16
    return {1: dtypes.int16, 2: INT32}.get(a.itemsize, FLOAT32)


def result_of(x: NkiTensor, dtype: Any) -> NkiTensor:
    """An unwritten tile for a function of ``x``."""
    return ndarray(x.shape, x.dtype if dtype is None else dtype)


def together(name: str, x: NkiTensor, y: NkiTensor) -> tuple[NkiTensor, NkiTensor]:
    """Two tiles with dimensions of size 1 repeated until their shapes agree.

    Free dimensions are repeated by views, which cost nothing; one partition is copied to many by
    :func:`~trn_sim.nki.language.broadcast_to`.
    """
    if x.shape == y.shape:
        return x, y
    if x.ndim != y.ndim or any(a != b and 1 not in (a, b) for a, b in zip(x.shape, y.shape, strict=True)):
        raise located(
            ConstraintFault(
                f"nl.{name} of shapes {x.shape} and {y.shape}",
                limit="as many dimensions, each of equal size or of size 1 in one of them",
            )
        )
    note(
        f"nl.{name} repeats a dimension of size 1: AWS's nl functions do not broadcast on hardware (known issue of NKI "
        "0.3 and 0.4); .broadcast(dim, size), nl.broadcast_to or the (P, 1) operand of nisa.tensor_scalar do"
    )
    shape = tuple(max(sizes) for sizes in zip(x.shape, y.shape, strict=True))
    return broadcast_to(x, shape), broadcast_to(y, shape)


def binary(op: str, x: Any, y: Any, dtype: Any) -> NkiTensor:
    """A new tile: x op y, by one ``tensor_tensor`` or ``tensor_scalar``."""
    alu = ALU_OPS[op]
    if isinstance(x, NkiTensor) and isinstance(y, NkiTensor):
        x, y = together(op, x, y)
        out = ndarray(x.shape, promote(x.dtype, y.dtype) if dtype is None else dtype)
        nisa.tensor_tensor(out, x, y, alu)
        return out
    tile, number, reverse = (x, y, False) if isinstance(x, NkiTensor) else (y, x, True)
    if not isinstance(tile, NkiTensor):
        raise located(
            ConstraintFault(
                f"nl.{op} of {x!r} and {y!r}",
                limit="one of them is a tile",
                advice="numbers that Python knows are computed by Python",
            )
        )
    out = result_of(tile, dtype)
    nisa.tensor_scalar(out, tile, alu, number, reverse)
    return out


def activate(op: Op, x: NkiTensor, dtype: Any) -> NkiTensor:
    """A new tile by one ``activation``."""
    out = result_of(x, dtype)
    nisa.activation(out, op, x)
    return out


def scaled(
    x: NkiTensor, op0: str, operand0: Any, op1: str | None = None, operand1: Any = None, dtype: Any = None, **rest: Any
) -> NkiTensor:
    """A new tile by one ``tensor_scalar``: (x op0 operand0) op1 operand1."""
    out = result_of(x, dtype)
    second = None if op1 is None else ALU_OPS[op1]
    nisa.tensor_scalar(out, x, ALU_OPS[op0], operand0, op1=second, operand1=operand1, **rest)
    return out


# --- two inputs ---------------------------------------------------------------------------------------


@operator
def add(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x + y."""
    return binary("add", x, y, dtype)


@operator
def subtract(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x - y."""
    return binary("subtract", x, y, dtype)


@operator
def multiply(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x * y; integers of more than 24 bits lose bits, unless all tiles are 32-bit integers."""
    return binary("multiply", x, y, dtype)


@operator
def maximum(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """The larger one."""
    return binary("maximum", x, y, dtype)


@operator
def minimum(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """The smaller one."""
    return binary("minimum", x, y, dtype)


@operator
def abs_max(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """The one of larger magnitude, with its sign; y of equal ones.  NeuronCore-v4."""
    return binary("abs_max", x, y, dtype)


@operator
def abs_min(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """The one of smaller magnitude, with its sign; y of equal ones.  NeuronCore-v4."""
    return binary("abs_min", x, y, dtype)


@operator
def power(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x to the power of y, on the GpSimd Engine."""
    return binary("power", x, y, dtype)


@operator
def equal(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where x = y, else 0."""
    return binary("equal", x, y, dtype)


@operator
def not_equal(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where x != y, else 0."""
    return binary("not_equal", x, y, dtype)


@operator
def less(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where x < y, else 0."""
    return binary("less", x, y, dtype)


@operator
def less_equal(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where x <= y, else 0."""
    return binary("less_equal", x, y, dtype)


@operator
def greater(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where x > y, else 0."""
    return binary("greater", x, y, dtype)


@operator
def greater_equal(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where x >= y, else 0."""
    return binary("greater_equal", x, y, dtype)


@operator
def bitwise_and(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """Bits of both; integers."""
    return binary("bitwise_and", x, y, dtype)


@operator
def bitwise_or(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """Bits of either; integers."""
    return binary("bitwise_or", x, y, dtype)


@operator
def bitwise_xor(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """Bits of exactly one; integers."""
    return binary("bitwise_xor", x, y, dtype)


@operator
def left_shift(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x shifted left by y bits; integers."""
    return binary("left_shift", x, y, dtype)


@operator
def right_shift(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x shifted right by y bits, zeros from the left; integers."""
    return binary("right_shift", x, y, dtype)


@operator
def logical_and(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where both are not 0."""
    return binary("logical_and", x, y, dtype)


@operator
def logical_or(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where one is not 0."""
    return binary("logical_or", x, y, dtype)


@operator
def logical_xor(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where exactly one is not 0."""
    return binary("logical_xor", x, y, dtype)


# --- the Scalar Engine's functions --------------------------------------------------------------------


def _scalar_engine(name: str, meaning: str) -> Op:
    def function(x: NkiTensor, dtype: Any = None) -> NkiTensor:
        return activate(op, x, dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning}; one ``activation``."
    op: Op = operator(function)
    return op


exp = _scalar_engine("exp", "e to the power of x")
log = _scalar_engine("log", "Natural logarithm")
sqrt = _scalar_engine("sqrt", "Square root")
square = _scalar_engine("square", "x * x")
abs = _scalar_engine("abs", "Magnitude")
sign = _scalar_engine("sign", "-1, 0 or 1")
tanh = _scalar_engine("tanh", "Hyperbolic tangent")
sigmoid = _scalar_engine("sigmoid", "1 / (1 + exp(-x))")
relu = _scalar_engine("relu", "x where positive, else 0")
gelu = _scalar_engine("gelu", "x times the normal distribution function of x")
gelu_apprx_sigmoid = _scalar_engine("gelu_apprx_sigmoid", "gelu by x * sigmoid(1.702 x)")
gelu_apprx_tanh = _scalar_engine("gelu_apprx_tanh", "gelu by the tanh formula")
gelu_dx = _scalar_engine("gelu_dx", "Derivative of gelu")
gelu_apprx_sigmoid_dx = _scalar_engine("gelu_apprx_sigmoid_dx", "Derivative of gelu_apprx_sigmoid")
silu = _scalar_engine("silu", "x * sigmoid(x)")
silu_dx = _scalar_engine("silu_dx", "Derivative of silu")
softplus = _scalar_engine("softplus", "log(1 + exp(x))")
mish = _scalar_engine("mish", "x * tanh(softplus(x))")
erf = _scalar_engine("erf", "Error function")
erf_dx = _scalar_engine("erf_dx", "Derivative of the error function")
arctan = _scalar_engine("arctan", "Arc tangent; the engine's table covers -pi/2 to pi/2")

prelu = constant("prelu")
bypass = constant("bypass")
average = constant("average")


# --- one input, other engines -------------------------------------------------------------------------


@operator
def rsqrt(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """1 / sqrt(x) on the GpSimd Engine (since NKI 0.5), so SBUF only."""
    return scaled(x, "rsqrt", None, dtype=dtype, engine=Engine.gpsimd)


@operator
def reciprocal(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """1 / x on the Vector Engine."""
    out = result_of(x, dtype)
    nisa.reciprocal(out, x)
    return out


@operator
def negative(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """-x, a multiplication by -1."""
    return scaled(x, "multiply", -1.0, dtype=dtype)


@operator
def invert(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """All bits flipped: exclusive or with ones; integers."""
    ones = (1 << 8 * x.dtype.itemsize) - 1 if x.dtype.kind == "u" else -1
    return scaled(x, "bitwise_xor", ones, dtype=dtype)


@operator
def logical_not(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """1 where x is 0, else 0: exclusive or with 1, as on the chip, so x holds 0 and 1."""
    return scaled(x, "logical_xor", 1, dtype=dtype)
