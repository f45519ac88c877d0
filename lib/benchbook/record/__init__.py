"""The public record: what publications printed of training, with its sources, its faults, and the prices of chips."""

from benchbook.record.articles import citation, read, refused, sources

__all__ = ["citation", "read", "refused", "sources"]
