"""What the experiments share: settings with reasons, the command line, tables in pages."""
