"""The group coordinator: groups of every protocol and the offsets they commit."""
