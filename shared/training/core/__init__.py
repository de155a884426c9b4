"""What all trainers share, whatever their framework: the batch plan, the run, its position, its reports."""
