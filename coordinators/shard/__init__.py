"""One partition of an internal topic with the state its log describes: decide, append, replay, reply when committed."""
