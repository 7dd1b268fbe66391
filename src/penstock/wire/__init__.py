"""What processes say to each other: messages, and batches as aligned bytes."""
