"""Data: where they lie, how they get there, and how each layout is read; NumPy alone."""
