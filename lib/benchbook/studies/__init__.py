"""The studies: a folder each."""
