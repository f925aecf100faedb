"""The settings of the frontier's experiments."""
