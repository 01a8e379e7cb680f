"""Between the protocols: groups that move from one to the other, and their members that have not moved yet."""
