"""Measure a training loop or a network of the user's own: one clock, fresh processes, no rows."""
