"""What Keras shares on TensorFlow and on JAX."""
