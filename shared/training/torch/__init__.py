"""What the trainers with PyTorch share; `shared.training.keras` has the counterparts, with the same names."""
