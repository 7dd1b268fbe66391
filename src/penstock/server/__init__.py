"""The server: one store for ranks on other hosts. Knows no torch."""
