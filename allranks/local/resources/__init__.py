"""What the processes of a step use of the machine while they run: processors, memory, files and GPUs, by rank."""
