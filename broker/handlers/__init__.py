"""One file per API."""
