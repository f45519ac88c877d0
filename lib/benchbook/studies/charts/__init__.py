"""The chart engine: what a chart of a table looks like, and how it is drawn."""
