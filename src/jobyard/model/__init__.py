"""Model: the nouns, as frozen values with no I/O, clock or randomness. All packages may import them."""
