"""What loaders report about themselves, and the live picture of it."""
