"""What studies share for every framework: devices, batches, settings, the training step, plain
optimisers."""
