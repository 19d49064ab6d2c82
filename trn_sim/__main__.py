"""``python -m trn_sim`` is the command ``trn-sim``."""

from trn_sim.cli import main

if __name__ == "__main__":
    main()
