"""The training code that studies share: batches, options, torch, Keras, several devices."""
