"""What an instruction of a NeuronCore *is*: operands, limits, semantics and work.  Knows no memory and no time."""
