"""A channel from the reader's end: options, registration, sessions, batches in order of steps."""
