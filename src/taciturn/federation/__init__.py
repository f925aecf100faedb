"""What real federations have in common, on plain dicts of NumPy arrays; nodes are named by text."""
