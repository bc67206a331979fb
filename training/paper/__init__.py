"""What reproduces the tables and figures of the paper and nothing else needs."""
