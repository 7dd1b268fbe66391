"""What operators need: HTTP pages, metrics, statistics of the process, the server's life."""
