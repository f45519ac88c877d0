"""What several studies share in training: batches, options, torch, Keras, several devices."""
