"""Who may do what, how much of it, and what is counted: every request passes here."""
