"""The tables of configuration keys, one module for each kind."""
