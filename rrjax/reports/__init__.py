"""Reports with everything that is needed to use them, and what they answer."""
