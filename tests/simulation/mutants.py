"""Bugs that the simulation must find: each is one line of the client changed, in the spirit of one that a client has shipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["MUTANTS", "Mutant"]


class Mutant(NamedTuple):
    """A change of one place in a module of ``aioproducer``; ``old`` occurs there exactly once."""

    name: str
    module: str
    old: str
    new: str


_SEQUENCES: Final = "core.sequences"
_OUTCOMES: Final = "accumulator.outcomes"
_RETRIES: Final = "engine.retries"
_POOL: Final = "accumulator.buffer_pool"
_QUEUES: Final = "accumulator.queues"
_QUEUE: Final = "accumulator.partition_queue"
_ACCUMULATOR: Final = "accumulator.accumulator"
_BATCHES: Final = "core.batches"
_LONE: Final = "engine.lone_batch"
_ANSWERS: Final = "engine.produce_answers"
_CODES: Final = "core.produce_error_codes"
_CONNECTION: Final = "net.connection"
_HAND_OVER: Final = "intake.hand_over"

MUTANTS: Final[Sequence[Mutant]] = (
    # -- sequences and epochs
    Mutant(
        "a sequence is skipped",
        _SEQUENCES,
        "increment_sequence(state.next_sequence, batch.count)\n            if",
        "increment_sequence(state.next_sequence, batch.count + 1)\n            if",
    ),
    Mutant(
        "a sequence is used twice",
        _SEQUENCES,
        "state.next_sequence = increment_sequence(state.next_sequence, batch.count)\n            if",
        "state.next_sequence = increment_sequence(state.next_sequence, batch.count - 1)\n            if",
    ),
    Mutant(
        "a retried batch is numbered again",
        _SEQUENCES,
        "        if batch.base_sequence != NO_SEQUENCE:\n            return\n        state = self._partitions.get(batch.partition)\n        if state is None:\n            state =",
        "        state = self._partitions.get(batch.partition)\n        if state is None:\n            state =",
    ),
    Mutant(
        "the sequence of a possibly written batch is taken back",
        _SEQUENCES,
        "        if batch.possibly_written:\n            state.unresolved.append(after)\n        elif after",
        "        if after",
    ),
    Mutant(
        "a hole in the sequences is left",
        _SEQUENCES,
        "        else:\n            state.bump_at(batch.base_sequence)\n        if state.unresolved",
        "        if state.unresolved",
    ),
    Mutant(
        "the epoch is raised while batches are in flight",
        _SEQUENCES,
        "self.is_beyond_repair(batch.base_sequence) and not batch.is_in_flight for",
        "self.is_beyond_repair(batch.base_sequence) for",
    ),
    Mutant(
        "the epoch is raised although earlier batches are unanswered",
        _SEQUENCES,
        "self.is_beyond_repair(batch.base_sequence) and not batch.is_in_flight for",
        "not batch.is_in_flight for",
    ),
    Mutant(
        "the epoch does not change with the sequences",
        _SEQUENCES,
        "            self.epoch += 1\n",
        "            pass\n",
    ),
    Mutant("the epoch runs over", _SEQUENCES, "if self.epoch >= MAX_EPOCH or self._leaves_id:", "if self._leaves_id:"),
    Mutant(
        "several batches are in flight before the first acknowledgement",
        _SEQUENCES,
        "return state.has_place(self._limit if state.acknowledged and not state.may_be_forgotten else 1)",
        "return state.has_place(self._limit)",
    ),
    Mutant(
        "more batches are in flight than a broker remembers",
        _SEQUENCES,
        "return not self.places or self.next_place - self.places[0] < limit",
        "return True",
    ),
    Mutant(
        "a later batch is sent before the retry of an earlier one",
        _SEQUENCES,
        "return state is not None and state.numbered[0] is batch and not state.is_beyond_repair(batch.base_sequence)",
        "return True",
    ),
    Mutant(
        "new batches are sent while the fate of an earlier one is open",
        _SEQUENCES,
        "if state.bump_from is not None or state.unresolved:",
        "if state.bump_from is not None:",
    ),
    Mutant(
        "the doubt about a lost batch is never resolved",
        _SEQUENCES,
        "                state.bump_at(state.unresolved[0])\n",
        "                pass\n",
    ),
    Mutant(
        "a doubt counts as resolved at once",
        _SEQUENCES,
        "if state.acknowledged and state.expected == state.next_sequence:",
        "if state.acknowledged:",
    ),
    Mutant(
        "batches of an earlier epoch advance the mark",
        _SEQUENCES,
        "return self.idempotent and batch.producer_epoch == state.epoch and batch.producer_id == state.producer_id",
        "return self.idempotent",
    ),
    Mutant(
        "the parts of a split batch are numbered from 0",
        _SEQUENCES,
        "part.renumber(batch.producer_id, batch.producer_epoch, sequence)",
        "part.renumber(batch.producer_id, batch.producer_epoch, 0)",
    ),
    Mutant(
        "the batches after a bump keep their old numbers",
        _SEQUENCES,
        "                batch.renumber(self.producer_id, self.epoch, state.next_sequence)\n                state.next",
        "                state.next",
    ),
    # -- outcomes
    Mutant(
        "a failed batch is reported as written",
        _OUTCOMES,
        "        batch.result.fail(failure)\n",
        "        batch.result.succeed(0, -1)\n",
    ),
    Mutant(
        "a batch is completed with the offset of its last record",
        _OUTCOMES,
        "batch.result.succeed(base_offset, log_append_time_ms)",
        "batch.result.succeed(base_offset + batch.count - 1, log_append_time_ms)",
    ),
    Mutant(
        "a completed batch is not reported",
        _OUTCOMES,
        "            batch.result.succeed(base_offset, log_append_time_ms)\n",
        "",
    ),
    Mutant("memory is not given back", _OUTCOMES, "        self._pool.release(reserved)\n", ""),
    Mutant(
        "memory is given back twice",
        _OUTCOMES,
        "        self._pool.release(reserved)\n",
        "        self._pool.release(reserved)\n        self._pool.release(reserved)\n",
    ),
    Mutant(
        "a retried batch goes to the end of its queue",
        _OUTCOMES,
        "        queue.insert(batch)\n        self._queues.place(queue, now)\n\n    def split",
        "        queue.batches.append(batch)\n        self._queues.place(queue, now)\n\n    def split",
    ),
    Mutant(
        "a retried batch is forgotten",
        _OUTCOMES,
        "        queue.insert(batch)\n        self._queues.place(queue, now)\n\n    def split",
        "        self._queues.place(queue, now)\n\n    def split",
    ),
    Mutant(
        "a retried batch does not wake its queue",
        _OUTCOMES,
        "        queue.insert(batch)\n        self._queues.place(queue, now)\n\n    def split",
        "        queue.insert(batch)\n\n    def split",
    ),
    Mutant(
        "the queue behind a failed batch is not woken",
        _OUTCOMES,
        "        queue.remove_from_flight(batch)\n        self._queues.place(queue, now)\n        self._release(batch)",
        "        queue.remove_from_flight(batch)\n        self._release(batch)",
    ),
    Mutant(
        "a flush does not wait for the last batch",
        _OUTCOMES,
        "waiter = FlushWaiter(len(batches), on_done)",
        "waiter = FlushWaiter(len(batches) + 1, on_done)",
    ),
    Mutant(
        "an expired batch in flight loses its bytes",
        _OUTCOMES,
        "            batch.given_up = True\n            self.fail_stopped(self._queues.by",
        "            batch.given_up = True\n            batch.drop_bytes()\n            self.fail_stopped(self._queues.by",
    ),
    Mutant(
        "an expired batch in flight counts as answered",
        _OUTCOMES,
        "            batch.given_up = True\n            self.fail_stopped(self._queues.by",
        "            batch.given_up = True\n            self._release(batch)\n            self.fail_stopped(self._queues.by",
    ),
    Mutant(
        "a transaction does not learn of a failed batch",
        _OUTCOMES,
        "            self._transaction.batch_failed(cause)\n",
        "            pass\n",
    ),
    Mutant(
        "a batch that was answered stays in flight",
        _OUTCOMES,
        "        queue.remove_from_flight(batch)\n        if queue.batches:",
        "        if queue.batches:",
    ),
    # -- retries
    Mutant(
        "a lost response counts as not written",
        _RETRIES,
        "        batch.possibly_written = True\n        batch.last_failure = FailedAttempt(error, node, now)\n        self._client",
        "        batch.last_failure = FailedAttempt(error, node, now)\n        self._client",
    ),
    Mutant(
        "an ambiguous error counts as not written",
        _RETRIES,
        "        if may_be_written(code):\n            batch.possibly_written = True\n        elif",
        "        if",
    ),
    Mutant(
        "a lost connection fails the batch",
        _RETRIES,
        "if error.retriable or isinstance(error, ProtocolError):",
        "if isinstance(error, ProtocolError):",
    ),
    Mutant(
        "an unreadable response fails the batch at once",
        _RETRIES,
        "if error.retriable or isinstance(error, ProtocolError):",
        "if error.retriable:",
    ),
    Mutant(
        "a possibly written batch gets new numbers",
        _RETRIES,
        "elif batch.possibly_written and (self._sequences.is_next(batch) or self._follows_unrepeated(batch)):",
        "elif False:",
    ),
    Mutant(
        "a refused sequence is repeated for ever",
        _RETRIES,
        "            self._sequences.unexpected(batch, answer.error_code, answer.log_start_offset)\n",
        "",
    ),
    Mutant("an expired batch is sent again", _RETRIES, "if batch.given_up or batch.attempts", "if batch.attempts"),
    Mutant(
        "another leader is not looked for",
        _RETRIES,
        "        metadata.distrust_leader(*batch.partition, node)\n        self._client.request_update(batch.partition.topic)\n",
        "",
    ),
    Mutant(
        "a fenced producer continues with its id",
        _RETRIES,
        "            self._sequences.fenced(refusal.batch)\n",
        "            pass\n",
    ),
    # -- memory
    Mutant("memory is not checked", _POOL, "if size > self.free or self.line:", "if self.line:"),
    Mutant(
        "a waiting caller is not woken",
        _POOL,
        "        self.free += size\n        if self._queue:\n            self._grant()",
        "        self.free += size",
    ),
    Mutant(
        "a cancelled caller keeps the memory", _POOL, "            self.release(ticket.size)\n", "            pass\n"
    ),
    Mutant("a waiting caller takes no memory", _POOL, "                self.free -= ticket.size\n", ""),
    Mutant(
        "a caller who has waited keeps its place in the line",
        _POOL,
        "        self._note_wait(ticket)\n        self.line -= 1\n\n    def _note_wait",
        "        self._note_wait(ticket)\n\n    def _note_wait",
    ),
    # -- queues
    Mutant(
        "a retried batch is put at the wrong place",
        _QUEUE,
        "if waiting.ordinal > batch.ordinal:",
        "if waiting.ordinal < batch.ordinal:",
    ),
    Mutant(
        "a batch that was answered is still in flight",
        _QUEUE,
        "        batch.is_in_flight = False\n        if batch in",
        "        if batch in",
    ),
    Mutant(
        "a batch never expires", _QUEUES, "        while expiries and expiries[0][0] <= now:", "        while False:"
    ),
    Mutant(
        "an expired batch stays in its queue",
        _QUEUES,
        "                expired.append(queue.batches.popleft())",
        "                expired.append(queue.batches[0])\n                break",
    ),
    Mutant("a queue without a leader is never looked at again", _QUEUES, "            *self._leaderless,\n", ""),
    Mutant(
        "a queue that waits for its numbers is not woken",
        _QUEUES,
        "        for queue in list(self._blocked):\n            self.place(queue, now)",
        "        pass",
    ),
    Mutant(
        "a backoff never ends",
        _QUEUES,
        "                self.place(queue, now)\n\n    def next_deadline",
        "                pass\n\n    def next_deadline",
    ),
    Mutant(
        "the second batch of a queue is drained first",
        _QUEUES,
        "queue.in_flight.append(queue.batches.popleft())",
        "queue.in_flight.append(queue.batches.pop())",
    ),
    Mutant(
        "a batch reaches a topic that was created again before earlier ones do",
        _QUEUES,
        " or (queue.in_flight and self._is_created_again(queue))",
        "",
    ),
    Mutant(
        "the rest of a drained queue is forgotten",
        _ACCUMULATOR,
        "            if queue.batches:\n                queues.place(queue, now)\n        self.sticky",
        "        self.sticky",
    ),
    Mutant("a drained batch gets no number", _ACCUMULATOR, "        self.sequences.number(batch)\n", ""),
    Mutant("a batch in flight does not know it", _ACCUMULATOR, "        batch.is_in_flight = True\n", ""),
    Mutant(
        "a new batch does not wake the Sender",
        _ACCUMULATOR,
        "            self.queues.promote(queue, now)\n            self._wake_sender()\n\n    def _claim",
        "            self.queues.promote(queue, now)\n\n    def _claim",
    ),
    # -- batches
    Mutant(
        "a new number does not reach the bytes",
        _BATCHES,
        "self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence\n        self._stamped = False",
        "self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence",
    ),
    Mutant(
        "a failed batch in flight counts as not written",
        _BATCHES,
        "self.possibly_written or self.is_in_flight,",
        "self.possibly_written,",
    ),
    Mutant(
        "a batch does not say that it is part of a transaction",
        _BATCHES,
        "self.base_sequence, self.transactional)",
        "self.base_sequence, False)",
    ),
    # -- the fast path, answers, connections
    Mutant(
        "the fast path overtakes batches in flight",
        _LONE,
        "or queue.in_flight or queue.place is not None or len(queue.batches) != 1:",
        "or not queue.batches:",
    ),
    Mutant("the fast path drops errors", _LONE, "self._sender.answers.take(node, (batch,), answer, now)", "pass"),
    Mutant(
        "the answers are taken in the wrong order",
        _ANSWERS,
        "for batch, each in zip(batches, answer.of_batches, strict=True):",
        "for batch, each in zip(batches, answer.of_batches[::-1], strict=True):",
    ),
    Mutant(
        "all batches of a request share the first answer",
        _ANSWERS,
        "self._take_one(node, batch, each, answer",
        "self._take_one(node, batch, answer.of_batches[0], answer",
    ),
    Mutant(
        "a response to another request is accepted",
        _CONNECTION,
        "if correlation_id != waiting.correlation_id:",
        "if False:",
    ),
    Mutant(
        "a request is never given up",
        _CONNECTION,
        "        if self._loop.time() < first.deadline:\n            self._arm(first.deadline)\n            return\n",
        "        if True:\n            return\n",
    ),
    Mutant(
        "a lost connection leaves its requests without an answer",
        _CONNECTION,
        "        unanswered = [*self._waiting, *self._unwritten]",
        "        unanswered = [*self._unwritten]",
    ),
    Mutant(
        "requests that were not handed over are forgotten",
        _CONNECTION,
        "        unanswered = [*self._waiting, *self._unwritten]",
        "        unanswered = [*self._waiting]",
    ),
    Mutant(
        "an error without an offset is a success",
        _ANSWERS,
        "verdict = produce_verdict(answer.error_code)",
        "verdict = ProduceVerdict.COMPLETE",
    ),
    # -- the end of the sequences, threads, pauses, and brokers that lose or forget
    Mutant(
        "the sequences go on after 2^31 - 1",
        _SEQUENCES,
        "return (sequence + count) % _SEQUENCES",
        "return sequence + count",
    ),
    Mutant(
        "the sequence 2^31 - 1 is left out",
        _SEQUENCES,
        "_SEQUENCES = 2**31\n",
        "_SEQUENCES = 2**31 - 1\n",
    ),
    Mutant(
        "a record from a thread overtakes those that wait for its topic",
        _HAND_OVER,
        "            if topic not in queues:\n                try:",
        "            if True:\n                try:",
    ),
    Mutant(
        "a burst of records from threads is taken only once",
        _HAND_OVER,
        "            self._is_awake = True\n        self.loop.call_soon(self.take)\n",
        "            self._is_awake = True\n            self.loop.call_soon(self.take)\n",
    ),
    Mutant(
        "a record from a thread that has to wait is forgotten",
        _HAND_OVER,
        "            queue.records.append((handle, deadline))\n            return\n",
        "            return\n",
    ),
    Mutant(
        "the records that wait when the producer is closed get no outcome",
        _HAND_OVER,
        "            for handle, _ in records:\n                self._refuse(handle, why)\n",
        "            del why\n",
    ),
    Mutant(
        "a round trip does not wait for the records before it",
        _HAND_OVER,
        "        if not tasks:\n            return timeout\n        began",
        "        if True:\n            return timeout\n        began",
    ),
    Mutant(
        "a queue stays in a pause for ever",
        _QUEUES,
        "        self._pause.end()\n        for queue in list(self._pausing):\n            self.place(queue, now)\n",
        "        self._pause.end()\n",
    ),
    Mutant(
        "a batch whose broker may have lost it gets a new number",
        _RETRIES,
        "elif batch.possibly_written and (self._sequences.is_next(batch) or self._follows_unrepeated(batch)):",
        "elif False:",
    ),
)
