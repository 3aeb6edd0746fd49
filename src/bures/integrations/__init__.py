"""Bridges to libraries that `bures` does not need: each is imported only when asked for."""
