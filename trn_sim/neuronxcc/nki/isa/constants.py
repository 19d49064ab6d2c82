"""``neuronxcc.nki.isa.constants``: the enumerations of :mod:`trn_sim.nki.isa.constants`."""

from __future__ import annotations

from trn_sim.nki.isa.constants import *  # noqa: F403
from trn_sim.nki.isa.constants import __all__ as __all__
