"""What reading a prepared dataset needs: it imports nothing of the rooms beside it, and NumPy alone."""
