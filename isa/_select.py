"""The inner loop of affine_select, compiled.  Imported on first use, because numba is slow to load."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

__all__ = ["select"]

Bits = npt.NDArray[Any]


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def select(
    column: npt.NDArray[np.int32],
    ramp: npt.NDArray[np.int32],
    below: bool,
    zero: bool,
    above: bool,
    source: Bits,
    constant: Bits,
    out: Bits,
) -> None:
    """out[p, i] = source[p, i] where column[p] + ramp[i], in wrapping int32, is of a wanted sign, else constant[0].

    ``below``, ``zero`` and ``above`` say which signs are wanted; source, constant and out are unsigned bits.
    """
    other = constant[0]
    for p in range(out.shape[0]):
        base = column[p]
        for i in range(out.shape[1]):
            value = np.int32(base + ramp[i])
            wanted = (value < 0 and below) or (value == 0 and zero) or (value > 0 and above)
            out[p, i] = source[p, i] if wanted else other
