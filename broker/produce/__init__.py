"""Produce: may it be appended, the append, and the acknowledgement."""
