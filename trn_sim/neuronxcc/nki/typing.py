"""``neuronxcc.nki.typing``: the annotations of :mod:`trn_sim.nki.typing`, which mean the same in both namespaces."""

from __future__ import annotations

from trn_sim.nki.typing import *  # noqa: F403
from trn_sim.nki.typing import __all__ as __all__
