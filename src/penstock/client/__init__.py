"""A rank's side: connections to a hub, channels, batches."""
