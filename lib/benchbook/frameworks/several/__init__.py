"""Training on several devices at once."""
