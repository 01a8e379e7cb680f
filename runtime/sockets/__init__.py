"""Connected sockets: bytes in, bytes and file ranges out, and what the page cache has to do with it."""
