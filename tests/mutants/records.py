"""Mistakes in what is written, read and told: `offsets`, `groups`, `coordinator`, `newer_groups`, `router`."""

from tests.mutants.mutant import Mutant

RECORDS = (
    # Commits.
    Mutant(
        "offsets.py",
        "                self._extend_session(group, member, now, out)\n",
        "                pass\n",
        "a consumer that commits and does not heartbeat loses its seat",
    ),
    Mutant(
        "offsets.py",
        "        and seats.state is _STABLE\n",
        "",
        "a commit is taken while the assignment is awaited",
    ),
    Mutant(
        "offsets.py",
        "        event.generation == seats.generation\n        and",
        "        True\n        and",
        "a member of an older generation overwrites its successor's offsets",
    ),
    Mutant(
        "offsets.py",
        "        and (event.instance_id is None or event.instance_id == member.instance_id)\n",
        "",
        "a commit under a wrong instance id is taken",
    ),
    Mutant(
        "offsets.py",
        "        if event.generation < 0 and state is State.EMPTY:\n",
        "        if event.generation < 0:\n",
        "anybody may commit for a group that has members",
    ),
    Mutant(
        "offsets.py",
        "            expire_ms = _as_int64(now.wall_ms + event.retention_ms)",
        "            expire_ms = now.wall_ms",
        "a commit with a retention of its own is over at once",
    ),
    Mutant(
        "offsets.py",
        "        return units > self._max_metadata_units or ",
        "        return units >= self._max_metadata_units or ",
        "metadata of exactly the limit is refused",
    ),
    Mutant(
        "offsets.py",
        "_FIRST_VERSION_OF_MEMBER_EPOCHS = 9",
        "_FIRST_VERSION_OF_MEMBER_EPOCHS = 10",
        "clients of version 9 hear an error that they do not expect",
    ),
    Mutant(
        "offsets.py",
        "            write.producer_id, write.producer_epoch = event.producer_id, event.producer_epoch\n",
        "            pass\n",
        "an offset of a transaction is visible before the transaction has ended",
    ),
    Mutant(
        "offsets.py",
        "(state is State.EMPTY or (not event.member_id and event.instance_id is None))",
        "state is State.EMPTY",
        "producers older than version 3 cannot commit for a group with members",
    ),
    Mutant(
        "offsets.py",
        "> self._max_pending_offsets:",
        ">= self._max_pending_offsets:",
        "one pending offset less than the limit is taken",
    ),
    Mutant(
        "offsets.py",
        "if len(self._groups) < self._max_groups else",
        "if len(self._groups) <= self._max_groups else",
        "one group more than the limit is created",
    ),
    # Offsets.
    Mutant(
        "groups.py",
        "if committed is None or is_further(offset, committed):",
        "if True:",
        "an older commit of a transaction wins over a newer ordinary one",
    ),
    Mutant(
        "groups.py",
        "if committed is None or is_further(offset, committed):",
        "if committed is None:",
        "a transaction never replaces an offset",
    ),
    Mutant(
        "groups.py",
        "            if not commit:\n                continue\n",
        "",
        "offsets of aborted transactions count",
    ),
    Mutant(
        "groups.py",
        "        if not group.pending:\n            return\n        for producer_id",
        "        return\n        for producer_id",
        "a marker brings a deleted offset back",
    ),
    Mutant(
        "groups.py",
        "group.offsets[partition] = encode_log_offset(log_offset) + commit_bytes",
        "group.offsets[partition] = encode_log_offset(base_offset) + commit_bytes",
        "all offsets of one commit stand at the same place of the log, so that a restart changes them",
    ),
    Mutant(
        "offsets.py",
        "event.require_stable and bool(group.pending)",
        "event.require_stable and False",
        "a consumer starts from an offset that a transaction is about to replace",
    ),
    Mutant(
        "offsets.py",
        "event.require_stable and bool(group.pending)",
        "bool(group.pending)",
        "a reader that does not ask for stable offsets has to wait for transactions",
    ),
    Mutant(
        "offsets.py",
        "            if is_active and seats.is_subscribed(topic):\n",
        "            if False:\n",
        "offsets that a running group needs are deleted",
    ),
    Mutant(
        "offsets.py",
        " in group.offsets or group.holds_pending((topic, partition)):",
        " in group.offsets:",
        "a deleted offset comes back with the marker of its transaction",
    ),
    Mutant(
        "offsets.py",
        "        records.append(_group_tombstone(event.group_id))\n",
        "",
        "a deleted group is back after a restart",
    ),
    Mutant(
        "offsets.py",
        "_tombstones(event.group_id, group.all_partitions())",
        "_tombstones(event.group_id, group.offsets)",
        "a deleted group is back with the marker of a transaction",
    ),
    Mutant(
        "offsets.py",
        "held = group.offsets if not group.pending else group.all_partitions()",
        "held = group.offsets",
        "an offset of a deleted topic comes back with the marker of its transaction",
    ),
    Mutant(
        "offsets.py",
        "and not group.pending and group.seats.state is State.EMPTY\n",
        "and group.seats.state is State.EMPTY\n",
        "a group expires although a transaction is open in it",
    ),
    Mutant(
        "offsets.py",
        "            and not seats.is_subscribed(partition[0])\n",
        "",
        "offsets of a topic that is read once a month expire",
    ),
    Mutant(
        "offsets.py",
        "            and not group.holds_pending(partition)\n",
        "",
        "an offset expires while a transaction holds another one for it",
    ),
    Mutant(
        "offsets.py",
        "            elif state is not State.STABLE or seats.subscribed_topics is None:\n",
        "            elif seats.subscribed_topics is None:\n",
        "offsets expire in a rebalance, by subscriptions that are about to change",
    ),
    Mutant(
        "offsets.py",
        "                base_ms = seats.state_timestamp_ms\n",
        "                pass\n",
        "a group that was in use until now loses its oldest offsets at once",
    ),
    Mutant(
        "offsets.py",
        "            return wall_ms >= expire_ms\n",
        "            return wall_ms > expire_ms\n",
        "an offset outlives its end by a run of the clean-up",
    ),
    Mutant(
        "offsets.py",
        " >= self._retention_ms",
        " > self._retention_ms",
        "an offset outlives its retention by a run of the clean-up",
    ),
    # What is told of groups.
    Mutant(
        "coordinator.py",
        "_FIRST_VERSION_WITH_NOT_FOUND = 6",
        "_FIRST_VERSION_WITH_NOT_FOUND = 5",
        "clients of version 5 hear an error that they do not expect",
    ),
    Mutant(
        "coordinator.py",
        "protocol = seats.protocol if state is State.STABLE else None",
        "protocol = seats.protocol",
        "a group in a rebalance is described with the protocol before it",
    ),
    Mutant(
        "coordinator.py",
        "state.lower().strip() for state",
        "state.strip() for state",
        "a filter of states matches nothing",
    ),
    # Whose partition it is.
    Mutant(
        "router.py",
        "found is not None and epoch <= found.epoch",
        "found is not None and epoch < found.epoch",
        "news of the same election throws away what was loaded",
    ),
    Mutant(
        "router.py",
        "epoch is not None and epoch <= found.epoch",
        "epoch is not None and epoch < found.epoch",
        "an old resignation throws away what was loaded",
    ),
    Mutant(
        "router.py",
        "if found is None or found.epoch != epoch or found.ownership",
        "if found is None or found.ownership",
        "a load that was overtaken is served",
    ),
    Mutant(
        "router.py",
        "if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and type(event) is Heartbeat:\n",
        "if False:\n",
        "every group rebalances when its coordinator moves",
    ),
    Mutant(
        "router.py",
        "        if any(each.ownership is Ownership.LOADING for each in self.routed.values()):\n",
        "        if False:\n",
        "groups of a partition that loads seem not to exist",
    ),
    Mutant(
        "router.py",
        "        coordinator.activate(now, out)\n",
        "",
        "members that died with the old node stay for ever, as nobody watches their sessions",
    ),
    # What follows when the log has taken a write, or refused it.
    Mutant(
        "coordinator.py",
        "                if is_taken:\n                    out.notices.extend(notices)\n",
        "                if True:\n                    out.notices.extend(notices)\n",
        "the operator hears that a group was removed, which the log has refused",
    ),
    Mutant(
        "coordinator.py",
        "answer if is_taken else refusal(event, commit_error(error))",
        "answer",
        "a client believes that its group is deleted, which the log has refused",
    ),
    Mutant(
        "coordinator.py",
        "                        self._end(group, out)\n",
        "                        pass\n",
        "a deleted group goes on to wait for the ids that it handed out",
    ),
    # Replay and loading.
    Mutant(
        "groups.py",
        "            self._group(group_id).record = value\n",
        "            group = self._group(group_id)\n"
        "            group.record, group.seats = value, Seats.recorded(value)\n",
        "a record that comes back from the log ends the rebalance that followed it",
    ),
    Mutant(
        "groups.py",
        " or bool(self.offsets) or bool(self.pending)\n",
        " or bool(self.offsets)\n",
        "the tombstone of a group takes the open transactions with it",
    ),
    Mutant(
        "newer_groups.py",
        "            self.kinds.pop(key.group_id, None)\n",
        "",
        "a group of a newer kind is listed after it has gone",
    ),
    Mutant(
        "coordinator.py",
        "            self.rebalancing.activate(group, now, out)\n",
        "            pass\n",
        "members that died with the old coordinator stay for ever",
    ),
    Mutant(
        "groups.py",
        "    table.take_seats()\n    report.count_state(table)\n",
        "    report.count_state(table)\n",
        "a restart, record by record, turns all members out",
    ),
    Mutant(
        "groups.py",
        "    table.take_seats()\n    table.reindex()\n",
        "    table.reindex()\n",
        "a restart turns all members out",
    ),
    Mutant(
        "groups.py",
        "header.producer_id if header.is_transactional else NO_PRODUCER",
        "NO_PRODUCER",
        "a restart makes offsets of open and aborted transactions count",
    ),
    Mutant(
        "groups.py",
        "table.replay_marker(producer_id, kind == COMMIT)",
        "table.replay_marker(producer_id, True)",
        "a restart makes offsets of aborted transactions count",
    ),
    Mutant(
        "groups.py",
        "    table.reindex()\n",
        "",
        "a marker that comes after a restart does not find its offsets",
    ),
    Mutant(
        "groups.py",
        "        _bury(groups, group_id, (topic, partition), log_offset)\n",
        "        pass\n",
        "a restart brings deleted offsets back",
    ),
    Mutant(
        "groups.py",
        "    except UnsupportedVersion as error:\n"
        '        raise LoadFailed(f"the record at offset {record.offset} is of a newer broker: {error}") from error\n',
        "",
        "after a downgrade, groups are served with older offsets than were committed",
    ),
)
