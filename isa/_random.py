"""The XORWOW step, compiled.  Imported on the first draw, because numba is slow to load."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

__all__ = ["draw"]


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def draw(states: npt.NDArray[np.uint32], out: npt.NDArray[np.uint32]) -> None:
    """Fill ``out`` (partitions, elements) from ``states`` (partitions, streams, 6), which move on.

    Element i comes from stream i mod streams.
    """
    streams = states.shape[1]
    for lane in range(out.shape[0]):
        for stream in range(streams):
            x, y, z, w, v, counter = states[lane, stream]
            for i in range(stream, out.shape[1], streams):
                t = x ^ (x >> np.uint32(2))
                x, y, z, w = y, z, w, v
                v = np.uint32((v ^ (v << np.uint32(4))) ^ (t ^ (t << np.uint32(1))))
                counter = np.uint32(counter + np.uint32(362437))
                out[lane, i] = np.uint32(counter + v)
            states[lane, stream, 0] = x
            states[lane, stream, 1] = y
            states[lane, stream, 2] = z
            states[lane, stream, 3] = w
            states[lane, stream, 4] = v
            states[lane, stream, 5] = counter
