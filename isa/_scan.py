"""Compiled recurrences: one pass per partition, state in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["cumulate", "scan"]


@njit(cache=True, nogil=True, inline="always")  # type: ignore[untyped-decorator]
def _apply(op: int, x: Any, y: Any) -> Any:
    """Operators by their code in :mod:`isa.alu`; codes without a branch are not offered for scans."""
    if op == 0:
        return x + y
    if op == 1:
        return x - y
    if op == 2:
        return x * y
    if op == 3:
        return x if np.isnan(x) or x > y else y
    return x if np.isnan(x) or x < y else y


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def scan(data0: Any, data1: Any, state: Any, op0: int, op1: int, reverse0: bool, reverse1: bool, out: Any) -> None:
    """out[p, i] = state[p] = op1(op0(data0[p, i], state[p]), data1[p, i]); arrays (P, F), state (P,), all float32."""
    rows, columns = out.shape
    if op0 == 2 and op1 == 0 and not reverse0 and not reverse1:
        for p in range(rows):
            carry = state[p]
            for i in range(columns):
                carry = np.float32(data0[p, i] * carry) + data1[p, i]
                out[p, i] = carry
            state[p] = carry
        return
    for p in range(rows):
        carry = state[p]
        for i in range(columns):
            inner = _apply(op0, carry, data0[p, i]) if reverse0 else _apply(op0, data0[p, i], carry)
            carry = _apply(op1, data1[p, i], inner) if reverse1 else _apply(op1, inner, data1[p, i])
            out[p, i] = carry
        state[p] = carry


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def cumulate(values: Any, state: Any, op: int, out: Any) -> None:
    """out[p, i] = state[p] = op(values[p, i], state[p]); arrays (P, F), state (P,), all float32."""
    rows, columns = out.shape
    for p in range(rows):
        carry = state[p]
        for i in range(columns):
            carry = _apply(op, values[p, i], carry)
            out[p, i] = carry
        state[p] = carry
