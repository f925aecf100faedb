"""What real federations have in common, whatever engine carries the messages.

Models and what clients return are plain dicts of NumPy arrays and numbers, nodes are named by text.
"""
