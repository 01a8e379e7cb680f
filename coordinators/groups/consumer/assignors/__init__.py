"""From members, what they subscribe to and what they have, to what each shall have."""
