"""The command line ``trn-sim``.

Each verb is a function that returns a report (:class:`trn_sim.view.report.Report`) and a thin click command around
it, in a file of its own.  Whatever is heavy is imported when a verb runs, so that ``trn-sim --help`` is instant.
"""

from trn_sim.cli.group import main

__all__ = ["main"]
