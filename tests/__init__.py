"""The tests, and what they share (`tests.leaks`)."""
