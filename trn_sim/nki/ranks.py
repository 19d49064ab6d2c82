"""Ranks: one kernel on many logical cores that communicate by ``nki.collectives``.

Each rank has its own HBM and its own inputs; all of them run the same function.  They take turns on the host, always in
the same order (:mod:`trn_sim.team`), so a launch gives the same bits every time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from isa.faults import ConstraintFault
from trn_sim.nki._support import located
from trn_sim.nki.kernel import Run, simulate

__all__ = ["run_ranks"]

Inputs = Mapping[str, Any] | Sequence[Any]
"""Arguments of one rank: by name, or in order."""


def run_ranks(
    kernel: Callable[..., Any],
    inputs: Sequence[Inputs] | Callable[[int], Inputs] | Mapping[str, Any],
    *,
    ranks: int | None = None,
    target: Any = None,
    precise: bool | None = None,
    uninitialized: str | None = None,
    values: bool | None = None,
    overflow: bool | None = None,
) -> Run:
    """Run a kernel on several ranks and return the whole :class:`Run`; its ``result`` is a list, one for each rank.

    Args:
        kernel: a kernel, ``kernel[2]`` for ranks of two physical cores each, or a plain function.
        inputs: the arguments of each rank (a dictionary by name or a tuple in order): a sequence with one entry per
            rank, a function of the rank, or one dictionary for all.
        ranks: how many; may be left out where ``inputs`` is a sequence.
        target, precise, uninitialized, values, overflow: as for :func:`trn_sim.run`.

    Raises:
        ConstraintFault: the number of ranks is unknown, or is not that of the inputs.
        Fault: the kernel breaks a rule on some rank, or ranks wait for each other for ever.
    """
    if ranks is None and (callable(inputs) or isinstance(inputs, Mapping)):
        raise located(ConstraintFault("run_ranks does not know how many ranks there are", advice="pass ranks=N"))
    count = len(inputs) if ranks is None else ranks  # type: ignore[arg-type]
    if callable(inputs):
        each = [inputs(rank) for rank in range(count)]
    elif isinstance(inputs, Mapping):
        each = [inputs] * count
    else:
        each = list(inputs)
    if count < 1 or len(each) != count:
        raise located(ConstraintFault(f"inputs of {len(each)} ranks", limit=f"ranks={ranks}, one and more"))
    split = [((), dict(own)) if isinstance(own, Mapping) else (tuple(own), {}) for own in each]
    wrapped = simulate(kernel)
    options = wrapped.options(
        target=target, precise=precise, uninitialized=uninitialized, values=values, overflow=overflow
    )
    return wrapped.run_ranks(split, options)
