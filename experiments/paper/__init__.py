"""The paper's tables and figures on real data, over seeds, and a verdict on each claim."""
