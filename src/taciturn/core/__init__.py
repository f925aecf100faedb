"""The algorithm: pure functions on flat weight vectors of any array library.

No JAX, no input or output, no random draws: those are passed in.
"""
