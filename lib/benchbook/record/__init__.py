"""The public record: published training figures with their sources and errors, and prices of chips."""

from benchbook.record.articles import citation, read, refused, sources

__all__ = ["citation", "read", "refused", "sources"]
