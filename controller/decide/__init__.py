"""Decisions as pure functions: an image and a request in, metadata records and a reply out."""
