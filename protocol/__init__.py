"""Wire types, message classes, codecs, record batches and compression: pure, no I/O."""
