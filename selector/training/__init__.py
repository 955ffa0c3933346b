"""Training of selectors: the only code that imports Lightning. See `fit.train` and `export.export`."""
