"""What people look at: the terminal, plots and pages."""
