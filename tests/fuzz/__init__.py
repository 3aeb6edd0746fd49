"""Inputs drawn at random for every public name and every file that is read, and what may come of them."""
