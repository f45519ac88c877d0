"""The public record: published training figures with their sources and errors, and prices of
chips."""

from benchbook.record.articles import citation, read

__all__ = ["citation", "read"]
