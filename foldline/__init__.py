"""foldline."""
