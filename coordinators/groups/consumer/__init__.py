"""Groups of the new consumer protocol (KIP-848): the coordinator assigns, members follow step by step.

A group has an epoch, bumped whenever its members, their subscriptions or the subscribed topics change. For each epoch
an assignor (`assignors`) makes a target assignment. Every member walks from what it has to its target on its own, one
heartbeat at a time (`reconcile`): it first gives up what it must, then takes what others have given up, and its member
epoch says how far it has come. Nobody waits for anybody, except for a partition that has an owner.

`consumer_protocol` holds the decisions of ConsumerGroupHeartbeat, `member_steps` and `fencing` what follows from them,
`migration` the way from one protocol to the other. `consumer_group` and `member` are the state, changed by
`group_replay` alone.
"""
