"""What runs on a node: the code that every component shares, copied into each snapshot."""
