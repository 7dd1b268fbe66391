"""One process per graph and host: the shell round the scheduler."""
