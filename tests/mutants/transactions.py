"""Mistakes in transactions: `core/transactions`."""

from tests.mutants.mutant import Mutant

_STATES, _TRANSACTIONS = "transactions/states.py", "transactions/transactions.py"
_COORDINATOR, _EVENTS, _ADMIN = "transactions/coordinator.py", "transactions/events.py", "transactions/admin.py"

TRANSACTIONS = (
    # Producers.
    Mutant(
        _COORDINATOR,
        "        producer_id, given_epoch = transaction.producer_id, epoch + 1\n",
        "        producer_id, given_epoch = transaction.producer_id, epoch\n",
        "an older producer with the same transactional id is not fenced",
    ),
    Mutant(
        _COORDINATOR,
        "            aborted = transaction.prepared(False, _SERVER_VERSION, event.fresh_producer_id, now.wall_ms)\n"
        "            answer",
        "            aborted = transaction.prepared(False, OLDEST_VERSION, event.fresh_producer_id, now.wall_ms)\n"
        "            answer",
        "the abort of a fenced producer leaves its epoch in force: its late batches are taken",
    ),
    Mutant(
        _COORDINATOR,
        "            answer = InitAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)\n",
        "            answer = InitAnswer(ErrorCode.NONE, aborted.producer_id, aborted.producer_epoch)\n",
        "a new producer begins before the transaction of the old one has ended",
    ),
    Mutant(
        _COORDINATOR,
        "            return ErrorCode.CONCURRENT_TRANSACTIONS\n        return ErrorCode.NONE if _is_its_producer",
        "            return ErrorCode.PRODUCER_FENCED\n        return ErrorCode.NONE if _is_its_producer",
        "a producer that begins while an end is under way gives up",
    ),
    Mutant(
        _COORDINATOR,
        "        return ErrorCode.NONE if _is_its_producer(event, transaction) else ErrorCode.PRODUCER_FENCED\n",
        "        return ErrorCode.NONE\n",
        "a producer with an id that was replaced long ago goes on",
    ),
    Mutant(
        _COORDINATOR,
        "and is_used_up(event.producer_epoch)",
        "and False",
        "a producer whose epoch was used up, and that lost the answer, is fenced by itself",
    ),
    Mutant(
        _COORDINATOR,
        "        if not 0 < event.timeout_ms <= self.config",
        "        if not 0 < event.timeout_ms < self.config",
        "the longest timeout is refused",
    ),
    Mutant(
        _COORDINATOR,
        "            has_room = len(self.transactions) < ",
        "            has_room = len(self.transactions) <= ",
        "there is one transactional id more than the limit",
    ),
    Mutant(
        _COORDINATOR,
        "        goes_on_from = NO_PRODUCER_EPOCH if is_new else epoch\n",
        "        goes_on_from = epoch\n",
        "a fenced producer gets the epoch of the one that fenced it, and both write",
    ),
    Mutant(
        _COORDINATOR,
        "        elif event.producer_epoch == last_epoch:\n            given_epoch = epoch\n",
        "",
        "a producer that lost the answer to its request is fenced by itself",
    ),
    Mutant(
        _COORDINATOR,
        "                producer_id, given_epoch = event.fresh_producer_id, 0\n",
        "                pass\n",
        "epochs grow past the last one",
    ),
    Mutant(
        _COORDINATOR,
        "            self._last_epochs.pop(decision.transactional_id, None)\n",
        "            pass\n",
        "a new producer leaves the old one the right to ask again",
    ),
    # Partitions.
    Mutant(
        _COORDINATOR,
        "    if transaction.producer_epoch != event.producer_epoch:\n"
        "        return ErrorCode.PRODUCER_FENCED\n"
        "    return ErrorCode.CONCURRENT_TRANSACTIONS if is_prepared",
        "    return ErrorCode.CONCURRENT_TRANSACTIONS if is_prepared",
        "a fenced producer adds partitions to the transaction of its successor",
    ),
    Mutant(
        _COORDINATOR,
        "    if is_prepared and not event.verify_only:\n        return ErrorCode.CONCURRENT_TRANSACTIONS\n",
        "",
        "a producer of the newer flow that goes on too early is told that it is fenced",
    ),
    Mutant(
        _COORDINATOR,
        "    return ErrorCode.CONCURRENT_TRANSACTIONS if is_prepared else ErrorCode.NONE\n",
        "    return ErrorCode.NONE\n",
        "a batch is taken behind the decision, and perhaps behind the marker",
    ),
    Mutant(
        _COORDINATOR,
        " and {*event.partitions} <= {*transaction.partitions}:",
        " and {*event.partitions} & {*transaction.partitions}:",
        "a producer is told that all its partitions were added, and its batches are refused",
    ),
    Mutant(
        _COORDINATOR,
        "    errors = tuple([ErrorCode.NONE if partition in added else not_added for partition in event.partitions])\n",
        "    errors = tuple([ErrorCode.NONE for partition in event.partitions])\n",
        "a batch is taken in a partition that never gets a marker",
    ),
    Mutant(
        _TRANSACTIONS,
        "            partitions=tuple(dict.fromkeys((*self.partitions, *partitions))),\n",
        "            partitions=tuple(partitions),\n",
        "partitions that were added before never get a marker",
    ),
    Mutant(
        _TRANSACTIONS,
        "            update_ms=wall_ms,\n"
        "            start_ms=wall_ms if self.state in AT_REST else self.record.start_ms,\n"
        "            client_version=client_version,\n        )\n\n    def prepared",
        "            update_ms=wall_ms,\n"
        "            start_ms=wall_ms,\n"
        "            client_version=client_version,\n        )\n\n    def prepared",
        "a transaction that grows never times out",
    ),
    Mutant(
        _COORDINATOR,
        "_FIRST_ADD_OF_VERSION_2 = 4",
        "_FIRST_ADD_OF_VERSION_2 = 3",
        "the record has another version of transactions than Kafka writes",
    ),
    # Ends.
    Mutant(
        _TRANSACTIONS,
        "            producer_epoch=self.producer_epoch + bumps,\n",
        "            producer_epoch=self.producer_epoch,\n",
        "a late batch of one transaction becomes part of the next",
    ),
    Mutant(
        _TRANSACTIONS,
        "            next_producer_id=fresh_producer_id if bumps and self.is_used_up else NO_PRODUCER_ID,\n",
        "            next_producer_id=NO_PRODUCER_ID,\n",
        "an end uses up the last epoch, and there is none to fence with",
    ),
    Mutant(
        _TRANSACTIONS,
        "            producer_id=record.next_producer_id if is_replaced else record.producer_id,\n",
        "            producer_id=record.producer_id,\n",
        "two transactions of one producer id have the same epoch",
    ),
    Mutant(
        _TRANSACTIONS,
        "            next_producer_id=NO_PRODUCER_ID,\n            partitions=(),\n",
        "            partitions=(),\n",
        "the record of an end names a next producer, as no broker writes it",
    ),
    Mutant(
        _TRANSACTIONS,
        "            next_producer_id=NO_PRODUCER_ID,\n            partitions=(),\n",
        "            next_producer_id=NO_PRODUCER_ID,\n",
        "markers of one transaction go to the partitions of the one before",
    ),
    Mutant(
        _TRANSACTIONS,
        "            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,\n",
        "            TransactionState.PREPARE_ABORT if commit else TransactionState.PREPARE_COMMIT,\n",
        "what is aborted is committed",
    ),
    Mutant(
        _TRANSACTIONS,
        "        if state not in LEGAL_MOVES[self.state]:\n",
        "        if False:\n",
        "a mistake in a decision goes into the log",
    ),
    Mutant(
        _TRANSACTIONS,
        "previous_producer_id=self.producer_id, **changes",
        "**changes",
        "a repeated EndTxn is not known after the producer id has changed",
    ),
    Mutant(
        _COORDINATOR,
        "                    transaction.state is TransactionState.PREPARE_COMMIT,\n",
        "                    True,\n",
        "a transaction that was aborted is committed in its partitions",
    ),
    Mutant(
        _COORDINATOR,
        "        for transaction in self.transactions.values():\n            self._go_on(transaction, out)\n",
        "        pass\n",
        "after a crash between the decision and the markers a transaction stays open for ever",
    ),
    Mutant(
        _COORDINATOR,
        "            and transaction.state in PREPARED\n            and (event.producer_id, event.producer_epoch) == "
        "(transaction.producer_id, transaction.producer_epoch)\n",
        "            and transaction.state in PREPARED\n",
        "late news of the markers of one transaction completes the next, whose partitions have none",
    ),
    Mutant(
        _COORDINATOR,
        "            self._go_on(transaction, out)  # a refused",
        "            pass  # a refused",
        "an end whose last record the log refused once stays under way for ever",
    ),
    Mutant(
        _COORDINATOR,
        "    if is_replaced or transaction.producer_epoch == event.producer_epoch + 1:\n",
        "    if is_replaced:\n",
        "a producer that lost the answer to EndTxn is fenced by itself",
    ),
    Mutant(
        _COORDINATOR,
        "        and event.producer_epoch == LAST_EPOCH - 1\n",
        "",
        "an older producer id ends the first transaction of the new one",
    ),
    Mutant(
        _COORDINATOR,
        "            last_epoch = transaction.producer_epoch if bumps else self._last_epoch(transaction)\n",
        "            last_epoch = self._last_epoch(transaction)\n",
        "a producer of the newer flow that goes on after an end it never heard of is fenced by itself",
    ),
    Mutant(
        _COORDINATOR,
        "_ended(decided.completed(now.wall_ms), bumps)",
        "_ended(decided, bumps)",
        "a producer is given an epoch past the last one",
    ),
    Mutant(
        _COORDINATOR,
        "_FIRST_END_THAT_BUMPS = 5",
        "_FIRST_END_THAT_BUMPS = 4",
        "older clients are fenced by their own first commit",
    ),
    # States.
    Mutant(
        _STATES,
        "    Rule(COMMIT, PRODUCER, _UNKNOWN, _INVALID, _ENDS, _CONCURRENT, _CONCURRENT, _AT_ONCE, _INVALID),\n",
        "    Rule(COMMIT, PRODUCER, _UNKNOWN, _INVALID, _ENDS, _CONCURRENT, _CONCURRENT, _AT_ONCE, _AT_ONCE),\n",
        "a producer is told that its transaction is committed, and it was aborted",
    ),
    Mutant(
        _STATES,
        "    Rule(ABORT_2, PRODUCER, _UNKNOWN, _ENDS, _ENDS, _CONCURRENT, _CONCURRENT, _ENDS, _ENDS),\n",
        "    Rule(ABORT_2, PRODUCER, _UNKNOWN, _INVALID, _ENDS, _CONCURRENT, _CONCURRENT, _INVALID, _INVALID),\n",
        "a producer of the newer flow cannot abort what failed before it began",
    ),
    Mutant(
        _STATES,
        "    Rule(COMMIT_2, AGAIN, _UNKNOWN, _FENCED, _FENCED, _CONCURRENT, _CONCURRENT, _AT_ONCE, _INVALID),\n",
        "    Rule(COMMIT_2, AGAIN, _UNKNOWN, _FENCED, _ENDS, _CONCURRENT, _CONCURRENT, _AT_ONCE, _INVALID),\n",
        "a late EndTxn commits the next transaction, in the middle",
    ),
    Mutant(
        _STATES,
        "    _PREPARE_COMMIT: (_COMPLETE_COMMIT,),\n",
        "    _PREPARE_COMMIT: (_COMPLETE_COMMIT, _COMPLETE_ABORT),\n",
        "what is decided could be decided otherwise",
    ),
    # Time.
    Mutant(
        _COORDINATOR,
        "record.start_ms + record.timeout_ms < wall_ms\n",
        "record.update_ms + record.timeout_ms < wall_ms\n",
        "a transaction to which partitions are added never times out",
    ),
    Mutant(
        _COORDINATOR,
        "        if transaction is not None and _is_timed_out(transaction, now.wall_ms):\n",
        "        if transaction is not None and transaction.state is TransactionState.ONGOING:\n",
        "a transaction that began since the look at the clock is aborted",
    ),
    Mutant(
        _COORDINATOR,
        "            if each.state in AT_REST and each.record.update_ms <= oldest_ms\n",
        "            if each.record.update_ms <= oldest_ms\n",
        "an open transaction is forgotten, and its partitions never get a marker",
    ),
    Mutant(
        _COORDINATOR,
        "            if error is ErrorCode.MESSAGE_TOO_LARGE and len(write.records) > 1:\n",
        "            if False:\n",
        "transactional ids that do not fit into one batch together are never forgotten",
    ),
    # Replay, and what is told.
    Mutant(
        _TRANSACTIONS,
        "            self.transactions.pop(key.transactional_id, None)\n",
        "            pass\n",
        "what was forgotten is back after a restart",
    ),
    Mutant(
        _TRANSACTIONS,
        "            if value.status not in _STATES:\n",
        "            if False:\n",
        "a damaged record stops the server",
    ),
    Mutant(
        _EVENTS,
        "    return producer_epoch >= LAST_EPOCH - 1\n",
        "    return producer_epoch >= LAST_EPOCH\n",
        "a client has the last epoch, and cannot be fenced",
    ),
    Mutant(
        _EVENTS,
        "event.version < _FIRST_WITH_FENCED.get(asker, _NO_VERSION)",
        "event.version < _FIRST_WITH_FENCED.get(asker, 0)",
        "producers hear an error of Produce that they do not know",
    ),
    Mutant(
        _EVENTS,
        "_FIRST_WITH_ABORTABLE: dict[str, int] = {Asker.PRODUCE: 11,",
        "_FIRST_WITH_ABORTABLE: dict[str, int] = {Asker.PRODUCE: 10,",
        "clients of version 10 hear an error that they do not know",
    ),
    Mutant(
        _EVENTS,
        "    return _LOG_ERRORS.get(error, error)\n",
        "    return error\n",
        "a producer gives up where it should have tried again",
    ),
    Mutant(
        _ADMIN,
        "wall_ms - transaction.record.start_ms <= event.min_duration_ms",
        "wall_ms - transaction.record.start_ms < event.min_duration_ms",
        "kafka-transactions lists one that is not as old as was asked for",
    ),
    Mutant(
        _ADMIN,
        "for name in event.states if name not in KAFKA_NAMES",
        "for name in ()",
        "a wrong name among the filters goes unnoticed",
    ),
)
