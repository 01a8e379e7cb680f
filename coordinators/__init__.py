"""Coordinators: state that lives in the partitions of an internal topic, on whichever broker leads them.

`runtime.CoordinatorRuntime(node, topic, make_state)` follows the leaderships of one internal topic. Every partition
this broker leads is a `shard.Shard`: it replays the log into a fresh state object (`make_state(shard)`), and then runs
events against it. The rule is *speculative state, committed replies*: an event sees the state with everything appended
before it, each of its records is replayed the moment it is written, all are appended with those of the other events of
the same turn of the event loop as one batch, and its replies, reads included, leave when the high watermark has passed
what it saw. When an append fails the state is thrown away and rebuilt from the log; when leadership is lost every reply
owed is NOT_COORDINATOR.

To plug in, write a state object (see `state.CoordinatorState` for all of it):

    class MyState:
        classes = {type: (KeyClass, ValueClass)}              # of the records, by the int16 that opens a key
        def replay(self, record, offset, producer_id): ...    # the only place that changes durable state
        def replay_end_transaction(self, producer_id, committed): ...
        def loaded(self, effects): ...                        # after replay: arm timers
        def metadata_changed(self, effects, delta, image): ...

A decision is a plain function of the state and an `effects.Effects`: it looks, and says what shall happen with
`effects.write(key, value, version)` (value None is a tombstone; the state has changed when it returns),
`effects.answer(reply, response)` now or in a later event (a parked JoinGroup), `effects.after(name, delay_ms, event)`
and `effects.cancel(name)`. `effects.now_ms` is the time. KafkaError raised by an event before it wrote anything
becomes the answer of its reply; the timers it has set by then are set. Soft state (who is parked, deadlines) may be
changed by the decision itself; durable state only by `replay`. Records of one event stay in one batch unless
`effects.atomic = False`.

A handler asks:

    shard = node.groups.shard_of(group_id)      # KafkaError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, ...
    reply = Reply(lambda code, message: MyResponse(error_code=code))
    shard.submit(lambda effects: shard.state.decide(effects, reply, ...), reply)
    return reply                                # a dispatch.Deferred

`submit(..., writes=False)` is for events that never write, or change nothing but timers before they do: they run even
while too few replicas are in sync, and only what they write is refused. `submit_soon` is for those that come in
crowds, `submit(..., producer=(id, epoch))` for records of a transaction (they get a transactional batch of their
own), `shard.end_transaction(...)` for its marker. The state of groups is `groups.GroupState`: `GroupState.groups` is
shared by all group types, `GroupState.offsets` by all committers.
"""
