"""``neuronxcc.starfish``: AWS's compiler; only the host-side helpers that test suites import are here."""
