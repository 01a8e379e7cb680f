"""Groups of the new consumer protocol (KIP-848): the coordinator assigns, members follow step by step.

A group has an epoch, bumped whenever its members, their subscriptions or the subscribed topics change. For each epoch
an assignor (`assignors`) makes a target assignment. Every member walks from what it has to its target on its own, one
heartbeat at a time (`reconcile`): it first gives up what it must, then takes what others have given up, and its member
epoch says how far it has come. Nobody waits for anybody, except for a partition that has an owner.

`protocol.ConsumerProtocol` holds the decisions of ConsumerGroupHeartbeat, `classic_members` those of members that still
speak the classic protocol inside such a group, `migration` turns a group of one kind into the other. `group` and
`member` are the state, changed by `replay` alone.
"""
