"""`DistServer`: the dataset, its queries, its backends and channels, and calls from ranks."""
