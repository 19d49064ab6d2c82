"""``neuronxcc.starfish.support.dtype``: the casts of :mod:`trn_sim.harness.neuron_dtypes` under their older name."""

from __future__ import annotations

from trn_sim.harness.neuron_dtypes import static_cast

__all__ = ["static_cast"]
