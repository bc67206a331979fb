"""Code bases whose weights are read: a file each, with names of weights and their JSON."""
