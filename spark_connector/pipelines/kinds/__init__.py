"""The kinds of pipelines, one module each: from what to what, and how each record gets there once."""
