"""The public record: published training figures with their sources and errors, and prices of
chips."""
