"""``nki.dtype``: the dtypes of ``nki.language`` under another name."""

from __future__ import annotations

from trn_sim.nki.language.dtypes import *  # noqa: F403
from trn_sim.nki.language.dtypes import __all__ as __all__
