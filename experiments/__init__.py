"""The experiments of this repository: the paper's figures, and the frontier."""
