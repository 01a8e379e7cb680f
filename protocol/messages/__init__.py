"""One file per API, request beside response; the class is the schema."""
