"""The public record: published figures of training with sources and faults, and the prices of chips."""

from benchbook.record.articles import citation, read, refused, sources

__all__ = ["citation", "read", "refused", "sources"]
