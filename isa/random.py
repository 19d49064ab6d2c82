"""Pseudo-random numbers of the Vector and GpSimd Engines.

The algorithm is XORWOW (G. Marsaglia, "Xorshift RNGs", 2003): five words of xorshift and a Weyl counter, 32 bits a
step.  AWS names it for the Vector Engine of NeuronCore-v4 and for the state instructions of GpSimd (from v3).  Every
compute lane (partition) owns its states: one on GpSimd, four on the Vector Engine, which draw in turn; a state is
six words, so a lane's saved state is 6 or 24 columns.

What is not published, and chosen here: the order of the six words (x, y, z, w, v, counter), the order in which the
four states of a Vector lane are used (element i comes from state i mod 4), how one seed is spread over lanes (a hash),
and the LFSR of the Vector Engine before v4, in whose place XORWOW stands.  So sequences are reproducible and of the
right distribution, but not those of the chip.
"""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from isa.engine import Engine

__all__ = ["LANES", "STATE_WORDS", "Generator"]

LANES = 128
STATE_WORDS = 6

Words = npt.NDArray[np.uint32]


class Generator:
    """The random states of one engine: ``streams`` states for each of the 128 lanes.

    Lanes are independent: what one lane draws does not depend on how many lanes draw beside it.
    """

    __slots__ = ("_state", "streams")

    def __init__(self, seed: int = 0, *, streams: int = 1) -> None:
        self.streams = streams
        self._state: Words = np.empty((LANES, streams, STATE_WORDS), np.uint32)
        self.seed(seed)

    @classmethod
    def of(cls, engine: Engine, seed: int = 0) -> Generator:
        """The generator an engine has: four states a lane on the Vector Engine, one elsewhere."""
        return cls(seed, streams=cls.streams_of(engine))

    @staticmethod
    def streams_of(engine: Engine) -> int:
        """States that a lane of an engine keeps."""
        return 4 if engine is Engine.vector else 1

    @property
    def columns(self) -> int:
        """Words of a lane's saved state: 6 or 24."""
        return self.streams * STATE_WORDS

    def seed(self, value: int) -> None:
        """Start all lanes anew from the low 32 bits of ``value``; no two lanes get the same state."""
        count = np.arange(self._state.size, dtype=np.uint64)
        mixed = (count + (np.uint64(value & 0xFFFFFFFF) << np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # the SplitMix64 finaliser
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
        self._state[...] = (mixed >> np.uint64(32)).astype(np.uint32).reshape(self._state.shape)

    def bits(self, shape: tuple[int, ...], *, start: int = 0) -> Words:
        """Draw 32 random bits per element.

        Args:
            shape: (partitions, elements...); partition p draws from lane ``start + p``.
            start: first lane.
        """
        from isa._random import draw

        partitions = shape[0]
        out = np.empty((partitions, prod(shape[1:])), np.uint32)
        draw(self._lanes(partitions, start), out)
        return out.reshape(shape)

    def uniform(self, shape: tuple[int, ...], *, start: int = 0) -> npt.NDArray[np.float32]:
        """Draw float32 values in [0, 1), multiples of 2**-24; arguments as :meth:`bits`."""
        return (self.bits(shape, start=start) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)

    def get_state(self, partitions: int = LANES, *, start: int = 0) -> Words:
        """A copy of the states of some lanes, (partitions, :attr:`columns`)."""
        return self._lanes(partitions, start).reshape(partitions, -1).copy()

    def set_state(self, values: npt.NDArray[np.integer], *, start: int = 0) -> None:
        """Replace the states of as many lanes as ``values`` (partitions, :attr:`columns`) has rows.

        Raises:
            ValueError: ``values`` has another number of columns.
        """
        if values.ndim != 2 or values.shape[1] != self.columns:
            raise ValueError(f"random state of shape {values.shape}; this engine keeps {self.columns} words a lane")
        lanes = self._lanes(values.shape[0], start)
        lanes[...] = values.astype(np.uint32).reshape(lanes.shape)

    def _lanes(self, partitions: int, start: int) -> Words:
        if start < 0 or start + partitions > LANES:
            raise ValueError(f"lanes {start} to {start + partitions - 1} of {LANES}")
        return self._state[start : start + partitions]
