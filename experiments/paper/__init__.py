"""The paper's experiments, its tables and its figures."""
