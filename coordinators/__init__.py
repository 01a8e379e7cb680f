"""Coordinators: who is in a group and what it has committed, which transaction is open, kept in the partitions of
internal topics by whichever broker leads them.

The rule is *speculative state, committed replies*: a decision sees the state with everything appended before it, and
its reply leaves when the high watermark has passed what it saw. `shard` carries that out for one partition, `groups`
and `transactions` are the decisions; how the two meet is said in `shard.contract`.
"""
