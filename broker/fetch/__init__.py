"""Fetch: sessions, the plan of an answer, and waiting for data."""
