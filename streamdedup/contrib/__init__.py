"""What plugs streamdedup into the libraries of others. Nothing else of the package imports it."""
