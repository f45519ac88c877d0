"""What may be said of rows: intervals, summaries, verdicts, comparisons."""
