"""Judge rows: intervals, summaries, verdicts, comparisons."""
