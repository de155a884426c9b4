"""What the trainers with TensorFlow share: the counterparts of `shared.training`, with the same names."""
