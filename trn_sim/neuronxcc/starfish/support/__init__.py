"""``neuronxcc.starfish.support``: see :mod:`trn_sim.neuronxcc.starfish`."""
