"""Coordinators: state that lives in the partitions of an internal topic, on whichever broker leads them.

`shard/shards.py: Shards` follows the leaderships of one internal topic. Every partition that this broker leads is a
`Shard`: it replays the log into a fresh state (`make_state(shard)`), and then runs events against it.

The rule is *speculative state, committed replies*. An event sees the state with everything appended before it. Each of
its records is replayed the moment it is written. The records of all events of one turn of the event loop are appended
as one batch. Replies, those of reads included, leave when the high watermark has passed what their event saw. When an
append fails, the state is thrown away and rebuilt from the log; when leadership is lost, every reply that is still to
be given says NOT_COORDINATOR.

A new kind of coordinator is a state (`shard/contract.py: CoordinatorState` has all of it):

    class MyState:
        classes = {type: (KeyClass, ValueClass)}              # of the records, by the int16 that opens a key
        def replay(self, record, offset, producer_id): ...    # the only place that changes durable state
        def replay_end_transaction(self, producer_id, committed): ...
        def loaded(self, effects): ...                        # after replay: arm timers
        def metadata_changed(self, effects, delta, image): ...

A decision is a plain function of the state and an `Effects`. It looks, and says what shall happen:

    effects.write(key, value, version)      # value None is a tombstone; the state has changed when this returns
    effects.answer(reply, response)         # now, or in a later event, as for a JoinGroup that waits
    effects.after(name, delay_ms, event)    # and effects.cancel(name); effects.now_ms is the time

A KafkaError that an event raises before it wrote anything becomes the answer of its reply; the timers it has set by
then are set. Durable state is changed by `replay` alone. What no record describes (who waits, deadlines) a decision may
change itself. Records of one event stay in one batch unless `effects.atomic = False`.

A handler asks:

    shard = ctx.services.groups.shard_of(group_id)  # KafkaError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, ...
    reply = Reply(lambda code, message: MyResponse(error_code=code))
    shard.submit(lambda effects: shard.state.decide(effects, reply, ...), reply)
    return reply                                    # a Deferred

`submit(..., writes=False)` is for events that never write, or change nothing but timers before they do: they run even
while too few replicas are in sync, and only what they write is refused. `submit_repeated` is for events that many
requests repeat, `submit(..., producer=(id, epoch))` for records of a transaction (they get a transactional batch of
their own), `shard.end_transaction(...)` for its marker. The state of groups is `groups/groups.py: GroupState`:
`GroupState.groups` is shared by all group types, `GroupState.offsets` by all committers.
"""
