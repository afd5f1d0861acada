"""The command `foldline`: the demo, the schema gate, and what an operator asks."""
